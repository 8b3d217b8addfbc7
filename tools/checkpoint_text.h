// What `tessera checkpoint` prints, for people and as JSON (docs/checkpoint-format.md, "Looking at one"). Texts end with a newline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/diff.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"

namespace tessera {

struct ListedCheckpoint {
  std::int64_t step = 0;
  std::string problem;  // "": complete, and only then what follows
  std::uint64_t bytes = 0;
  std::size_t num_files = 0;
  std::int64_t saved_at = 0;
  std::uint64_t root_hash = 0;
};
struct CheckpointList {
  std::string directory;
  std::vector<ListedCheckpoint> checkpoints;  // ascending steps
  std::vector<SkippedCheckpoint> unfinished;
};
// CheckpointError where the directory does not exist.
CheckpointList list_checkpoints(FileSystem& files, const std::string& directory);

std::string to_text(const CheckpointList& list);
std::string to_json(const CheckpointList& list);
std::string to_text(const std::string& folder, const Manifest& manifest, bool tensors);
std::string to_json(const std::string& folder, const Manifest& manifest);
std::string to_text(const std::string& folder, const VerifyReport& report);
std::string to_json(const std::string& folder, const VerifyReport& report);
std::string to_text(const CheckpointDiff& diff);
std::string to_json(const CheckpointDiff& diff);

}  // namespace tessera
