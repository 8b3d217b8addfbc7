// All units of a model on one rank, their initial values and the sums over their shards.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fsdp/sharded_unit.h"
#include "runtime/base/exact_sum.h"

namespace tessera {

class ShardedModel {
 public:
  // model must outlive the object.
  ShardedModel(const ModelSpec& model, const std::vector<UnitSpec>& units, const ShardGroups& groups,
               Allocator& allocator, StreamView compute);

  const ModelSpec& model() const { return model_; }
  const std::vector<UnitSpec>& unit_specs() const { return unit_specs_; }
  ShardedUnit& unit(int index) { return *units_[static_cast<std::size_t>(index)]; }
  const ShardedUnit& unit(int index) const { return *units_[static_cast<std::size_t>(index)]; }
  const ShardGroups& groups() const { return groups_; }
  // Whether sums over ranks take this rank's shards: of those that hold the same, one counts.
  bool is_first_replica() const { return groups_.replica == 0; }
  int num_units() const { return static_cast<int>(units_.size()); }
  int unit_of_segment(int segment) const { return unit_of_segment_[static_cast<std::size_t>(segment)]; }

  // Fills the shards: each element is a function of (seed, parameter name, logical index), so every layout starts equal, no rank ever holds a
  // full parameter and nothing is broadcast.
  void initialise(std::uint64_t seed, StreamView compute);
  // A hash of some of the initial values of every parameter, whoever holds them: equal on all ranks, or they start from different models.
  std::uint64_t initial_digest(std::uint64_t seed) const;
  // Sum of squares of this rank's gradient shards, exact; padding and frozen parameters never count.
  ExactSum gradient_square_sum(StreamView compute) const;
  void drop_gradients();

  // Views for a segment, in the order of SegmentSpec::parameters.
  std::vector<TensorView> parameter_views(int segment) const;
  // The lookup segment of a tied matrix belongs to the first segment (embedding), the other to the head.
  std::vector<TensorView> gradient_views(int segment, StreamView compute);

 private:
  const ModelSpec& model_;
  std::vector<UnitSpec> unit_specs_;
  ShardGroups groups_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::vector<int> unit_of_segment_;
};

}  // namespace tessera
