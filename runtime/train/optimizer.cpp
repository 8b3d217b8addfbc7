#include "runtime/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/math.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/optimizer_ops.h"
#include "runtime/train/optimizer_groups.h"

namespace tessera {
namespace {

std::span<float> part(std::span<float> shard, const ShardSlice& slice) {
  return shard.subspan(static_cast<std::size_t>(slice.shard_offset), static_cast<std::size_t>(slice.size));
}

// The sum over chunks of a slice's hash; any order gives the same sum.
std::uint64_t slice_hash(ThreadPool& pool, const std::string& name, const ShardSlice& slice,
                         std::span<const float> values) {
  constexpr std::int64_t kChunk = 1 << 16;
  const std::uint64_t name_hash = hash_string(name);
  const std::int64_t num_chunks = (slice.size + kChunk - 1) / kChunk;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(num_chunks), 0);
  pool.parallel_for(num_chunks, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kChunk;
    const std::int64_t size = std::min(kChunk, slice.size - first);
    sums[static_cast<std::size_t>(chunk)] =
        state_hash_part(name_hash, static_cast<std::uint64_t>(slice.parameter_offset + first), values.data() + first,
                        static_cast<std::size_t>(size));
  });
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

AdamWOptimizer::AdamWOptimizer(const OptimizerConfig& config, ShardedModel& model, Allocator& allocator,
                               StreamView compute)
    : config_(config), model_(model) {
  const std::vector<int> groups = match_groups(config.groups, model.model().parameters);
  for (std::size_t p = 0; p < groups.size(); ++p) {
    const double decay = model.model().parameters[p].decay ? config.weight_decay : 0.0;
    Hyper hyper{.weight_decay = decay};
    if (groups[p] >= 0) {
      const OptimizerGroup& group = config.groups[static_cast<std::size_t>(groups[p])];
      hyper.learning_rate = group.learning_rate;
      hyper.weight_decay = group.weight_decay.value_or(decay);
    }
    hyper.frozen = model.model().parameters[p].frozen;
    hyper_.push_back(hyper);
  }
  for (int u = 0; u < model.num_units(); ++u) {
    if (model.unit(u).spec().frozen) {
      moments_.emplace_back();
      continue;
    }
    const auto bytes = static_cast<std::size_t>(model.unit(u).layout().shard_size) * sizeof(float);
    UnitMoments moments{allocator.allocate(bytes, MemoryCategory::kOptimizer, compute),
                        allocator.allocate(bytes, MemoryCategory::kOptimizer, compute)};
    std::ranges::fill(moments.m.span<float>(), 0.0F);
    std::ranges::fill(moments.v.span<float>(), 0.0F);
    moments_.push_back(std::move(moments));
  }
}

void AdamWOptimizer::step(std::int64_t update, double rate, double factor, float gradient_scale, StreamView compute) {
  const double beta1 = config_.betas[0];
  const double beta2 = config_.betas[1];
  const double correction1 = 1.0 - math::pow_int(beta1, static_cast<std::uint64_t>(update));
  const double correction2 = 1.0 - math::pow_int(beta2, static_cast<std::uint64_t>(update));
  for (int u = 0; u < model_.num_units(); ++u) {
    ShardedUnit& unit = model_.unit(u);
    UnitMoments& moments = moments_[static_cast<std::size_t>(u)];
    for (const ShardSlice& slice : unit.slices()) {
      const Hyper& hyper = hyper_[static_cast<std::size_t>(slice.parameter)];
      if (hyper.frozen) continue;
      const double slice_rate = hyper.learning_rate ? *hyper.learning_rate * factor : rate;
      ops::adamw(compute, {.parameter = part(unit.parameter_shard(), slice),
                           .m = part(moments.m.span<float>(), slice),
                           .v = part(moments.v.span<float>(), slice),
                           .gradient = part(unit.gradient_shard(), slice),
                           .gradient_scale = gradient_scale,
                           .beta1 = static_cast<float>(beta1),
                           .one_minus_beta1 = static_cast<float>(1.0 - beta1),
                           .beta2 = static_cast<float>(beta2),
                           .one_minus_beta2 = static_cast<float>(1.0 - beta2),
                           .step_size = static_cast<float>(slice_rate / correction1),
                           .denominator_scale = static_cast<float>(1.0 / std::sqrt(correction2)),
                           .eps = static_cast<float>(config_.eps),
                           .decay = static_cast<float>(slice_rate * hyper.weight_decay)});
    }
    unit.mark_written(compute);
  }
}

std::span<float> AdamWOptimizer::state(int unit, std::string_view suffix) {
  if (suffix.empty()) return model_.unit(unit).parameter_shard();
  UnitMoments& moments = moments_[static_cast<std::size_t>(unit)];
  return (suffix == kStateSuffixes[1] ? moments.m : moments.v).span<float>();
}

std::uint64_t AdamWOptimizer::state_hash(StreamView compute) const {
  ThreadPool& pool = cpu_device(compute).pool();
  std::uint64_t hash = 0;
  for (int u = 0; u < model_.num_units(); ++u) {
    const ShardedUnit& unit = model_.unit(u);
    const UnitMoments& moments = moments_[static_cast<std::size_t>(u)];
    for (const ShardSlice& slice : unit.slices()) {
      const std::string& name = model_.model().parameters[static_cast<std::size_t>(slice.parameter)].name;
      hash += slice_hash(pool, name, slice, part(unit.parameter_shard(), slice));
      if (hyper_[static_cast<std::size_t>(slice.parameter)].frozen) continue;
      hash += slice_hash(pool, name + ".m", slice, part(moments.m.span<float>(), slice));
      hash += slice_hash(pool, name + ".v", slice, part(moments.v.span<float>(), slice));
    }
  }
  return hash;
}

}  // namespace tessera
