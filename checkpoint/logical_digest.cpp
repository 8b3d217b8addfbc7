#include "checkpoint/logical_digest.h"

#include <algorithm>

#include "checkpoint/manifest.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

void append_u64(std::string& bytes, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

void append_text(std::string& bytes, const std::string& text) {
  append_u64(bytes, text.size());
  bytes += text;
}

}  // namespace

std::vector<std::uint64_t> partial_digests(const std::string& name, std::int64_t offset, std::int64_t count,
                                           const float* values) {
  const std::uint64_t name_hash = hash_string(name);
  const std::int64_t end = offset + count;
  std::vector<std::uint64_t> digests;
  for (std::int64_t begin = offset; begin < end;) {
    const std::int64_t next = std::min(end, (begin / kLogicalBlockElements + 1) * kLogicalBlockElements);
    digests.push_back(state_hash_part(name_hash, static_cast<std::uint64_t>(begin), values + (begin - offset),
                                      static_cast<std::size_t>(next - begin)));
    begin = next;
  }
  return digests;
}

void add_digests(std::vector<std::uint64_t>& digests, std::int64_t offset, const std::vector<std::uint64_t>& parts) {
  auto block = static_cast<std::size_t>(offset / kLogicalBlockElements);
  for (const std::uint64_t part : parts) digests.at(block++) += part;
}

std::uint64_t root_hash(const std::vector<TensorRecord>& tensors) {
  std::string bytes;
  for (const TensorRecord& tensor : tensors) {
    append_text(bytes, tensor.name);
    append_text(bytes, tensor.dtype);
    append_u64(bytes, tensor.shape.size());
    for (const std::int64_t extent : tensor.shape) append_u64(bytes, static_cast<std::uint64_t>(extent));
    append_u64(bytes, tensor.block_digests.size());
    for (const std::uint64_t digest : tensor.block_digests) append_u64(bytes, digest);
  }
  return hash_string(bytes);
}

std::uint64_t state_hash(const std::vector<TensorRecord>& tensors) {
  std::uint64_t sum = 0;
  for (const TensorRecord& tensor : tensors)
    for (const std::uint64_t digest : tensor.block_digests) sum += digest;
  return sum;
}

}  // namespace tessera
