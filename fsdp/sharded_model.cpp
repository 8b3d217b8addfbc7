#include "fsdp/sharded_model.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/rng.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/optimizer_ops.h"

namespace tessera {

ShardedModel::ShardedModel(const ModelSpec& model, const std::vector<UnitSpec>& units, int num_shards, int shard,
                           Allocator& allocator, StreamView compute)
    : model_(model), unit_specs_(units), unit_of_segment_(model.segments.size(), 0) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    units_.push_back(std::make_unique<ShardedUnit>(model, units[u], num_shards, shard, allocator, compute));
    for (const int s : units[u].segments) unit_of_segment_[static_cast<std::size_t>(s)] = static_cast<int>(u);
  }
}

void ShardedModel::initialise(std::uint64_t seed, StreamView compute) {
  constexpr std::int64_t kChunk = 1 << 14;
  ThreadPool& pool = cpu_device(compute).pool();
  for (const auto& unit : units_) {
    for (const ShardSlice& slice : unit->slices()) {
      const ParameterSpec& spec = model_.parameters[static_cast<std::size_t>(slice.parameter)];
      const std::span<float> values = unit->parameter_shard().subspan(static_cast<std::size_t>(slice.shard_offset),
                                                                      static_cast<std::size_t>(slice.size));
      if (spec.init != InitKind::kNormal) {
        std::fill(values.begin(), values.end(), spec.init == InitKind::kOne ? 1.0F : 0.0F);
        continue;
      }
      const CounterRng rng(seed, RandomPurpose::kInit, hash_string(spec.name));
      pool.parallel_for((slice.size + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
        const std::int64_t last = std::min(slice.size, (chunk + 1) * kChunk);
        for (std::int64_t i = chunk * kChunk; i < last; ++i) {
          const auto index = static_cast<std::uint64_t>(slice.parameter_offset + i);
          values[static_cast<std::size_t>(i)] = static_cast<float>(spec.init_std * rng.normal(index));
        }
      });
    }
    unit->mark_written(compute);
  }
}

ExactSum ShardedModel::gradient_square_sum(StreamView compute) const {
  ExactSum sum;
  for (const auto& unit : units_) {
    for (const ShardSlice& slice : unit->slices()) {
      sum.merge(ops::exact_sum_of_squares(compute,
                                          unit->gradient_shard().subspan(static_cast<std::size_t>(slice.shard_offset),
                                                                         static_cast<std::size_t>(slice.size))));
    }
  }
  return sum;
}

void ShardedModel::drop_gradients() {
  for (const auto& unit : units_) unit->drop_gradient();
}

std::vector<TensorView> ShardedModel::parameter_views(int segment) const {
  const ShardedUnit& unit = *units_[static_cast<std::size_t>(unit_of_segment(segment))];
  std::vector<TensorView> views;
  for (const int p : model_.segments[static_cast<std::size_t>(segment)].parameters) views.push_back(unit.parameter(p));
  return views;
}

std::vector<TensorView> ShardedModel::gradient_views(int segment, StreamView compute) {
  ShardedUnit& unit = *units_[static_cast<std::size_t>(unit_of_segment(segment))];
  std::vector<TensorView> views;
  for (const int p : model_.segments[static_cast<std::size_t>(segment)].parameters) {
    const bool lookup = segment == 0 && model_.parameters[static_cast<std::size_t>(p)].tied;
    views.push_back(unit.gradient(p, lookup, compute));
  }
  return views;
}

}  // namespace tessera
