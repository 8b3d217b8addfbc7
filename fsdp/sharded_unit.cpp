#include "fsdp/sharded_unit.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/ops/optimizer_ops.h"

namespace tessera {
namespace {

std::size_t bytes_of(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

// Zeroes what lies between the slots and behind the last, so that sums over whole flats never meet a NaN.
void zero_padding(const ShardLayout& layout, std::int64_t first, std::span<float> flat) {
  const std::int64_t last = first + static_cast<std::int64_t>(flat.size());
  std::int64_t from = first;
  for (const ParameterSlot& slot : layout.slots) {
    const std::int64_t to = std::clamp(slot.offset, first, last);
    if (from < to) std::fill(flat.begin() + (from - first), flat.begin() + (to - first), 0.0F);
    from = std::max(from, std::clamp(slot.offset + slot.size, first, last));
  }
  std::fill(flat.begin() + (from - first), flat.end(), 0.0F);
}

}  // namespace

ShardedUnit::ShardedUnit(const ModelSpec& model, const UnitSpec& unit, const ShardGroups& groups, Allocator& allocator,
                         StreamView compute)
    : model_(model),
      unit_(unit),
      layout_(make_shard_layout(model, unit, groups.num_shards)),
      shard_(groups.shard),
      allocator_(allocator),
      slices_(layout_.slices(groups.shard)),
      parameter_state_(groups.shard_group.empty() ? ParameterState::kFull : ParameterState::kSharded),
      parameter_shard_(allocator.allocate(bytes_of(layout_.shard_size), MemoryCategory::kParameters, compute)) {
  zero_padding(layout_, shard_ * layout_.shard_size, parameter_shard());
}

void ShardedUnit::unshard(Communicator& group, StreamView gather, const CollectiveTag& tag) {
  parameter_state_ = next(parameter_state_, ParameterEvent::kUnshard, name());
  void* output = parameter_shard_.data();
  if (layout_.num_shards > 1) {
    full_ = allocator_.allocate(bytes_of(layout_.flat_size()), MemoryCategory::kGathered, gather);
    output = full_.data();
  }
  gather.wait(written_);
  gather_work_ = group.all_gather({.input = parameter_shard_.data(),
                                   .output = output,
                                   .count = static_cast<std::uint64_t>(layout_.shard_size),
                                   .dtype = DType::kFloat32,
                                   .tag = tag},
                                  gather);
}

void ShardedUnit::wait_unshard(StreamView compute) {
  parameter_state_ = next(parameter_state_, ParameterEvent::kWait, name());
  gather_work_.wait(compute);
  if (full_) full_.record_use(compute);
}

void ShardedUnit::reshard() {
  parameter_state_ = next(parameter_state_, ParameterEvent::kReshard, name());
  full_.reset();
}

TensorView ShardedUnit::parameter(int index) const {
  require(parameter_state_ == ParameterState::kFull, "a parameter is read only while its unit is full");
  const ParameterSlot* slot = layout_.find(index);
  require(slot != nullptr, "the unit holds the parameter");
  float* base = layout_.num_shards > 1 ? full_.as<float>() : parameter_shard_.as<float>();
  return {base + slot->offset, model_.parameters[static_cast<std::size_t>(index)].shape};
}

void ShardedUnit::begin_lane(StreamView compute) {
  if (gradient_state_ == GradientState::kReduced) reduced_before_ = std::move(gradient_shard_);
  gradient_state_ = next(gradient_state_, GradientEvent::kBeginLane, name());
  Partial partial;
  partial.flat = allocator_.allocate(bytes_of(layout_.flat_size()), MemoryCategory::kGradients, compute);
  zero_padding(layout_, 0, partial.flat.span<float>());
  partials_.push_back(std::move(partial));
}

TensorView ShardedUnit::gradient(int index, bool lookup, StreamView compute) {
  require(gradient_state_ == GradientState::kPartial, "a gradient is written only while its unit has a lane open");
  const ParameterSlot* slot = layout_.find(index);
  require(slot != nullptr, "the unit holds the parameter");
  const Shape& shape = model_.parameters[static_cast<std::size_t>(index)].shape;
  Partial& partial = partials_.back();
  if (!lookup) return {partial.flat.as<float>() + slot->offset, shape};
  if (!partial.lookup) partial.lookup = allocator_.allocate(bytes_of(slot->size), MemoryCategory::kGradients, compute);
  return {partial.lookup.data(), shape};
}

void ShardedUnit::merge_lanes(StreamView compute) {
  gradient_state_ = next(gradient_state_, GradientEvent::kMerge, name());
  require(partials_.size() >= 2, "two lanes to merge");
  Partial& left = partials_[partials_.size() - 2];
  const Partial& right = partials_.back();
  ops::add_in_place(compute, left.flat.span<float>(), right.flat.span<float>());
  if (left.lookup) ops::add_in_place(compute, left.lookup.span<float>(), right.lookup.span<float>());
  partials_.pop_back();
}

ShardedUnit::Partial& ShardedUnit::begin_reduce(StreamView compute, StreamView reduce_stream) {
  gradient_state_ = next(gradient_state_, GradientEvent::kReduce, name());
  require(partials_.size() == 1, "one full gradient is left when it is reduced");
  reduce_stream.wait(compute.record());
  return partials_.front();
}

void ShardedUnit::reduce(Communicator& group, StreamView compute, StreamView reduce_stream, const CollectiveTag& tag) {
  Partial& partial = begin_reduce(compute, reduce_stream);
  float* output = partial.flat.as<float>();
  float* lookup_output = partial.lookup.as<float>();
  const std::vector<std::uint64_t> lookup_counts = layout_.lookup_counts();
  if (layout_.num_shards > 1) {
    gradient_shard_ = allocator_.allocate(bytes_of(layout_.shard_size), MemoryCategory::kGradients, reduce_stream);
    output = gradient_shard_.as<float>();
    if (partial.lookup) {
      const auto own = static_cast<std::int64_t>(lookup_counts[static_cast<std::size_t>(shard_)]);
      lookup_shard_ = allocator_.allocate(bytes_of(own), MemoryCategory::kGradients, reduce_stream);
      lookup_output = lookup_shard_.as<float>();
    }
  }
  ReduceScatterOptions options;
  options.parts.push_back({partial.flat.data(), output, layout_.shard_counts()});
  if (partial.lookup) options.parts.push_back({partial.lookup.data(), lookup_output, lookup_counts});
  options.tag = tag;
  reduce_work_ = group.reduce_scatter(options, reduce_stream);
}

void ShardedUnit::reduce_replicas(Communicator& group, StreamView compute, StreamView reduce_stream,
                                  const CollectiveTag& tag) {
  if (gradient_state_ == GradientState::kPartial) {
    require(layout_.num_shards == 1, "a gradient of several shards is scattered before replicas add theirs");
    begin_reduce(compute, reduce_stream);
  } else {
    gradient_state_ = next(gradient_state_, GradientEvent::kReduce, name());
  }
  // With one shard, what was added up is the shard.
  const bool whole = layout_.num_shards == 1;
  AllReduceOptions options{.data = whole ? partials_.front().flat.data() : gradient_shard_.data(),
                           .count = static_cast<std::uint64_t>(layout_.shard_size),
                           .tag = tag};
  if (layout_.tied_slot >= 0) {
    options.more.push_back({whole ? partials_.front().lookup.data() : lookup_shard_.data(),
                            layout_.lookup_counts()[static_cast<std::size_t>(shard_)]});
  }
  reduce_work_ = group.all_reduce(options, reduce_stream);
}

void ShardedUnit::wait_reduce(StreamView compute) {
  gradient_state_ = next(gradient_state_, GradientEvent::kWaitReduce, name());
  reduce_work_.wait(compute);
}

void ShardedUnit::finish_reduce(StreamView compute, bool accumulate) {
  require(gradient_state_ == GradientState::kReduced && !partials_.empty(), "a gradient was waited for");
  if (gradient_shard_) gradient_shard_.record_use(compute);
  if (lookup_shard_) lookup_shard_.record_use(compute);
  Partial partial = std::move(partials_.front());
  partials_.clear();
  if (layout_.num_shards == 1) {
    gradient_shard_ = std::move(partial.flat);
    lookup_shard_ = std::move(partial.lookup);
  }
  if (lookup_shard_) {
    const std::span<float> lookup = lookup_shard_.span<float>();
    const auto offset = static_cast<std::size_t>(layout_.lookup_shard_offset(shard_));
    ops::add_in_place(compute, gradient_shard_.span<float>().subspan(offset, lookup.size()), lookup);
    lookup_shard_.reset();
  }
  if (accumulate) {
    ops::add_in_place(compute, reduced_before_.span<float>(), gradient_shard_.span<float>());
    gradient_shard_ = std::move(reduced_before_);
  }
}

std::span<float> ShardedUnit::gradient_shard() const {
  require(gradient_state_ == GradientState::kReduced, "a gradient shard is read only when reduced");
  return gradient_shard_.span<float>();
}

void ShardedUnit::drop_gradient() {
  gradient_state_ = next(gradient_state_, GradientEvent::kDrop, name());
  partials_.clear();
  gradient_shard_.reset();
  lookup_shard_.reset();
  reduced_before_.reset();
}

}  // namespace tessera
