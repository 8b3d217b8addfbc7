// What a checkpoint consists of (docs/checkpoint-format.md, "manifest.json"): which slice of which tensor lies where, how to check it, and what
// training needs besides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/fields.h"
#include "checkpoint/file_system.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/training_state.h"

namespace tessera {

struct FileRecord {
  std::string name;  // in the checkpoint's folder
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> block_hashes;  // of each MiB
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

// A run of a flattened tensor's elements.
struct StoredSlice {
  int file = 0;                   // index into Manifest::files
  std::uint64_t file_offset = 0;  // bytes
  std::int64_t offset = 0;        // logical index of the first element
  std::int64_t count = 0;         // elements
  friend bool operator==(const StoredSlice&, const StoredSlice&) = default;
};

struct TensorRecord {
  std::string name;
  std::string dtype = "F32";  // version 1 has no other
  Extents shape;
  std::vector<StoredSlice> slices;  // ascending; they cover the tensor exactly once
  std::vector<std::uint64_t> block_digests;
  friend bool operator==(const TensorRecord&, const TensorRecord&) = default;

  std::int64_t num_elements() const;  // of a shape that validate() has seen
};

struct Manifest {
  std::uint64_t run_id = 0;
  std::int64_t step = 0;
  std::int64_t saved_at = 0;  // Unix seconds
  bool weights_only = false;  // an import: parameters without optimizer state, and no run to go on with
  Fields model;
  TrainingState training;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  // ascending names
  std::uint64_t root_hash = 0, state_hash = 0;
  friend bool operator==(const Manifest&, const Manifest&) = default;

  const TensorRecord* find(const std::string& name) const;  // nullptr: none of that name
  std::uint64_t bytes() const;                              // of all files
};

inline constexpr std::int64_t kCheckpointVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

// The rules of the format that JSON does not hold. CheckpointError naming `path` and the first that is broken.
void validate(const Manifest& manifest, const std::string& path);

std::string encode_manifest(const Manifest& manifest);
// Checks the own hash, the version, every field and validate(). path: for messages.
Manifest decode_manifest(const std::string& text, const std::string& path);
Manifest read_manifest(FileSystem& files, const std::string& folder);

}  // namespace tessera
