// The hash of each MiB of a file (docs/checkpoint-format.md, "Blocks of files").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

constexpr std::uint64_t num_blocks(std::uint64_t file_bytes) {
  return (file_bytes + kBlockBytes - 1) / kBlockBytes;
}
// Bytes of block `block`: the last one of a file is as long as what is left.
constexpr std::uint64_t block_size(std::uint64_t file_bytes, std::uint64_t block) {
  return block + 1 == num_blocks(file_bytes) ? file_bytes - block * kBlockBytes : kBlockBytes;
}

// Of one block.
std::uint64_t block_hash(std::span<const std::byte> block);
// Of consecutive blocks; `bytes` begins at a block's begin. Appends to hashes.
void append_block_hashes(std::span<const std::byte> bytes, std::vector<std::uint64_t>& hashes);

}  // namespace tessera
