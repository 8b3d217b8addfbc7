#include "checkpoint/block_hash.h"

#include <algorithm>

#include "runtime/base/hash.h"

namespace tessera {

std::uint64_t block_hash(std::span<const std::byte> block) {
  return hash_bytes(block.data(), block.size());
}

void append_block_hashes(std::span<const std::byte> bytes, std::vector<std::uint64_t>& hashes) {
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), kBlockBytes);
    hashes.push_back(block_hash(bytes.first(size)));
    bytes = bytes.subspan(size);
  }
}

}  // namespace tessera
