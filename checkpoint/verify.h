// Reads all of a checkpoint and says everything that is wrong with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera {

struct VerifyReport {
  std::vector<std::string> damage;  // a line each, naming the file and, where a block is, the block
  std::uint64_t num_files = 0, num_bytes = 0, num_blocks = 0;  // looked at
  std::uint64_t root_hash = 0;  // of a checkpoint without damage, made anew from its data
  bool ok() const { return damage.empty(); }
};

// The manifest, the size and every block of every shard, each shard's own header; and where all that is whole, the digests and the root from the
// data.
VerifyReport verify_checkpoint(FileSystem& files, const std::string& folder);

}  // namespace tessera
