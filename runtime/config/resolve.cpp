// What a job means on a given number of ranks.
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/config/chaos_faults.h"
#include "runtime/config/load.h"
#include "runtime/config/relations.h"

namespace tessera {

std::vector<std::int64_t> dp_values_that_fit(const JobConfig& job, std::int64_t lanes) {
  if (lanes < 1 || !config::batch_mismatch(job, lanes, "lanes").empty()) return {};
  return config::dp_values_of_lanes(lanes);
}

ResolvedBatch resolve(const JobConfig& job, std::int64_t world_size) {
  require(world_size > 0, "resolve: the world has at least one rank");
  require(job.batch.global_batch_size > 0 && job.batch.micro_batch_size > 0, "resolve: the config was loaded");
  ResolvedBatch out;
  out.pp = job.mesh.pp;
  out.tp = job.mesh.tp;
  const std::int64_t model_ranks = out.pp * out.tp;
  if (job.mesh.dp) {
    out.dp = *job.mesh.dp;
    if (out.dp * model_ranks != world_size) {
      throw ConfigError(fmt::format("mesh: world size {} != dp {} × pp {} × tp {} = {}", world_size, out.dp, out.pp,
                                    out.tp, out.dp * model_ranks),
                        "set mesh.dp: auto");
    }
  } else {
    if (world_size % model_ranks != 0) {
      throw ConfigError(fmt::format("mesh: world size {} is not a multiple of pp {} × tp {} = {}", world_size, out.pp,
                                    out.tp, model_ranks));
    }
    out.dp = world_size / model_ranks;
  }

  for (std::size_t i = 0; i < job.chaos.size(); ++i) {
    const ChaosFault& fault = job.chaos[i];
    if (fault.rank >= world_size) {
      throw ConfigError(fmt::format("chaos[{}].rank: {} is not one of the {} rank{}", i, fault.rank, world_size,
                                    world_size == 1 ? "" : "s"));
    }
    const bool alone = world_size == 1 && !config::fault_kind(fault.fault).ops.empty();
    if (alone && (fault.fault == "wrong_root" || !job.collectives.program_check)) {
      throw ConfigError(fmt::format("chaos[{}].fault: {} has no effect on one rank", i, fault.fault));
    }
  }

  out.lanes = job.reproducibility.lanes.value_or(out.dp);
  if (const auto mismatch = config::lanes_mismatch(out.lanes, out.dp); !mismatch.message.empty()) {
    throw ConfigError("reproducibility.lanes: " + mismatch.message, mismatch.hint);
  }
  const std::string_view lanes_name = out.lanes == out.dp ? "dp" : "lanes";
  if (const std::string mismatch = config::batch_mismatch(job, out.lanes, lanes_name); !mismatch.empty()) {
    throw ConfigError("batch.global_batch_size: " + mismatch,
                      config::nearest_multiples(job.batch.global_batch_size, out.lanes * job.batch.micro_batch_size));
  }
  out.accumulation = job.batch.global_batch_size / (out.lanes * job.batch.micro_batch_size);
  out.lanes_per_rank = out.lanes / out.dp;
  out.micro_batches_per_rank = out.lanes_per_rank * out.accumulation;
  return out;
}

}  // namespace tessera
