#include "fsdp/sharded_model.h"

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/rng.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/optimizer_ops.h"

namespace tessera {
namespace {

// The initial values of one parameter, by logical index.
class InitialValues {
 public:
  InitialValues(const ParameterSpec& spec, std::uint64_t seed)
      : spec_(spec), rng_(seed, RandomPurpose::kInit, hash_string(spec.name)) {}
  float at(std::int64_t index) const {
    if (spec_.init != InitKind::kNormal) return spec_.init == InitKind::kOne ? 1.0F : 0.0F;
    return static_cast<float>(spec_.init_std * rng_.normal(static_cast<std::uint64_t>(index)));
  }

 private:
  const ParameterSpec& spec_;
  CounterRng rng_;
};

}  // namespace

ShardedModel::ShardedModel(const ModelSpec& model, const std::vector<UnitSpec>& units, const ShardGroups& groups,
                           Allocator& allocator, StreamView compute)
    : model_(model), unit_specs_(units), groups_(groups), unit_of_segment_(model.segments.size(), 0) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    units_.push_back(std::make_unique<ShardedUnit>(model, units[u], groups, allocator, compute));
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
      const InitialValues initial(spec, seed);
      pool.parallel_for((slice.size + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
        const std::int64_t last = std::min(slice.size, (chunk + 1) * kChunk);
        for (std::int64_t i = chunk * kChunk; i < last; ++i) {
          values[static_cast<std::size_t>(i)] = initial.at(slice.parameter_offset + i);
        }
      });
    }
    unit->mark_written(compute);
  }
}

std::uint64_t ShardedModel::initial_digest(std::uint64_t seed) const {
  constexpr std::int64_t kSamples = 16;
  std::uint64_t digest = 0;
  for (const ParameterSpec& spec : model_.parameters) {
    const InitialValues initial(spec, seed);
    const std::int64_t size = spec.shape.num_elements();
    std::array<float, kSamples> values{};
    for (std::int64_t n = 0; n < kSamples; ++n)
      values[static_cast<std::size_t>(n)] = initial.at((size - 1) * n / (kSamples - 1));
    digest = hash_bytes(values.data(), sizeof values, hash_string(spec.name, digest));
  }
  return digest;
}

ExactSum ShardedModel::gradient_square_sum(StreamView compute) const {
  ExactSum sum;
  for (const auto& unit : units_) {
    if (unit->spec().frozen) continue;
    for (const ShardSlice& slice : unit->slices()) {
      if (model_.parameters[static_cast<std::size_t>(slice.parameter)].frozen) continue;
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
