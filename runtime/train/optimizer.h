// AdamW on shards: moments live beside the parameter shard, element for element (kOptimizer), and reshard with it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/sharded_model.h"
#include "runtime/config/job_config.h"

namespace tessera {

// What the names of a parameter's state end in: the parameter itself and its moments.
inline constexpr std::array<std::string_view, 3> kStateSuffixes = {"", ".m", ".v"};

class AdamWOptimizer {
 public:
  // Moments start at zero. groups' patterns are matched against parameter names; the last that matches counts. ConfigError for a pattern that
  // matches no parameter.
  AdamWOptimizer(const OptimizerConfig& config, ShardedModel& model, Allocator& allocator, StreamView compute);

  // Update number `update` (1 …) with the gradients of all units, times gradient_scale (clipping). rate: the scheduled learning rate;
  // factor: what the schedule makes of a rate of 1, by which a group's own learning_rate is scaled.
  void step(std::int64_t update, double rate, double factor, float gradient_scale, StreamView compute);

  // This rank's shard of what a unit keeps under a suffix; empty for the moments of a frozen unit. For saving and loading.
  std::span<float> state(int unit, std::string_view suffix);
  // Of this rank's shards: parameters ("name") and moments ("name.m", "name.v"; frozen parameters have none).
  std::uint64_t state_hash(StreamView compute) const;

 private:
  struct Hyper {
    bool frozen = false;
    std::optional<double> learning_rate;  // a group's own
    double weight_decay = 0.0;
  };
  struct UnitMoments {
    Buffer m, v;
  };
  const OptimizerConfig config_;
  ShardedModel& model_;
  std::vector<Hyper> hyper_;  // by model parameter
  std::vector<UnitMoments> moments_;
};

}  // namespace tessera
