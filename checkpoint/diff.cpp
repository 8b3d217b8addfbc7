#include "checkpoint/diff.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "checkpoint/logical_digest.h"

namespace tessera {
namespace {

class ValueComparison {
 public:
  ValueComparison(CheckpointReader& first, CheckpointReader& second)
      : first_(first), second_(second), a_(kLogicalBlockElements), b_(kLogicalBlockElements) {}

  TensorDifference compare(const TensorRecord& first, const TensorRecord& second) {
    TensorDifference difference{.kind = TensorDifference::Kind::kValues, .name = first.name};
    const std::int64_t size = first.num_elements();
    for (std::size_t block = 0; block < first.block_digests.size(); ++block) {
      if (first.block_digests[block] == second.block_digests[block]) continue;
      const std::int64_t offset = static_cast<std::int64_t>(block) * kLogicalBlockElements;
      const std::int64_t count = std::min(kLogicalBlockElements, size - offset);
      first_.read({{.name = first.name, .offset = offset, .count = count, .data = a_.data()}});
      second_.read({{.name = first.name, .offset = offset, .count = count, .data = b_.data()}});
      add_block(difference, offset, count);
    }
    return difference;
  }

 private:
  void add_block(TensorDifference& difference, std::int64_t offset, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const float a = a_[static_cast<std::size_t>(i)], b = b_[static_cast<std::size_t>(i)];
      if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) continue;
      if (difference.num_different++ == 0) difference.first_index = offset + i;
      const double distance = std::abs(static_cast<double>(a) - static_cast<double>(b));
      // A NaN, once met, stays.
      if (distance > difference.max_difference || std::isnan(distance)) difference.max_difference = distance;
    }
  }

  CheckpointReader &first_, &second_;
  std::vector<float> a_, b_;
};

}  // namespace

CheckpointDiff diff_checkpoints(CheckpointReader& first, CheckpointReader& second) {
  using Kind = TensorDifference::Kind;
  CheckpointDiff diff{.same_root = first.manifest().root_hash == second.manifest().root_hash,
                      .model = differences(first.manifest().model, second.manifest().model)};
  if (diff.same_root) return diff;
  ValueComparison values(first, second);
  for (const TensorRecord& tensor : first.manifest().tensors) {
    const TensorRecord* other = second.manifest().find(tensor.name);
    if (other == nullptr) {
      diff.differences.push_back({.kind = Kind::kOnlyInFirst, .name = tensor.name});
    } else if (other->shape != tensor.shape) {
      diff.differences.push_back(
          {.kind = Kind::kShape, .name = tensor.name, .first_shape = tensor.shape, .second_shape = other->shape});
    } else if (other->block_digests != tensor.block_digests) {
      diff.differences.push_back(values.compare(tensor, *other));
    }
  }
  for (const TensorRecord& tensor : second.manifest().tensors)
    if (first.manifest().find(tensor.name) == nullptr)
      diff.differences.push_back({.kind = Kind::kOnlyInSecond, .name = tensor.name});
  std::ranges::sort(diff.differences, {}, &TensorDifference::name);
  return diff;
}

}  // namespace tessera
