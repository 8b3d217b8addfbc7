// Digests of tensors that do not know how the tensors are cut (docs/checkpoint-format.md, "Logical blocks").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct TensorRecord;  // manifest.h

inline constexpr std::int64_t kLogicalBlockElements = std::int64_t{1} << 18;

constexpr std::int64_t num_logical_blocks(std::int64_t num_elements) {
  return (num_elements + kLogicalBlockElements - 1) / kLogicalBlockElements;
}

// What elements offset … offset + count - 1 of a tensor add to the digests of its logical blocks offset / kLogicalBlockElements and following,
// one for each block they touch. values: of these elements.
std::vector<std::uint64_t> partial_digests(const std::string& name, std::int64_t offset, std::int64_t count,
                                           const float* values);
// Adds the parts of a slice that begins at `offset` to the digests of the whole tensor.
void add_digests(std::vector<std::uint64_t>& digests, std::int64_t offset, const std::vector<std::uint64_t>& parts);

// Of tensors in ascending order of their names, from their block digests.
std::uint64_t root_hash(const std::vector<TensorRecord>& tensors);
// What the run's metrics show for the same state.
std::uint64_t state_hash(const std::vector<TensorRecord>& tensors);

}  // namespace tessera
