// What checkpoints a run has, and which of them load.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera {

struct SkippedCheckpoint {
  std::string folder;  // its name in the checkpoints directory
  std::string reason;  // one line
  friend bool operator==(const SkippedCheckpoint&, const SkippedCheckpoint&) = default;
};

struct LatestCheckpoint {
  std::optional<std::int64_t> step;  // none: no checkpoint is complete
  std::string folder;                // its path
  std::vector<SkippedCheckpoint>
      skipped;  // newer ones that are not complete, newest first, then unfinished saves: to be said aloud
};

// The newest complete checkpoint below step `below`: its manifest is whole, belongs to that step, and every shard is there in its size. (Whether
// every byte is what it was shows when it is loaded.) Nothing where `directory` does not exist.
LatestCheckpoint find_latest(FileSystem& files, const std::string& directory,
                             std::int64_t below = std::numeric_limits<std::int64_t>::max());

// "" where the checkpoint of this step is complete, else the reason.
std::string why_incomplete(FileSystem& files, const std::string& directory, std::int64_t step);

// The checkpoint that a user means by a path: a checkpoint's folder itself, or the newest complete one of a run directory or of its checkpoints.
// CheckpointError where there is none, with what was skipped.
std::string resolve_checkpoint(FileSystem& files, const std::string& path);
// The run that a checkpoint's folder belongs to: RUN of RUN/checkpoints/step-…; else the folder itself.
std::string run_of_checkpoint(const std::string& folder);
// The checkpoints directory that a user means: PATH/checkpoints where there is one, else PATH.
std::string resolve_directory(FileSystem& files, const std::string& path);

}  // namespace tessera
