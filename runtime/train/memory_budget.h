// What a rank may hold, and the refusal of a job that needs more.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/job_config.h"

namespace tessera {

struct Plan;

struct MemoryBudget {
  std::int64_t bytes = 0;  // 0: not known, and nothing is refused
  std::string source;      // "device.memory_limit", "16.00 GiB of this host for 8 ranks"
};
// The smaller of what the device has for this rank and device.memory_limit.
MemoryBudget memory_budget(const DeviceConfig& config, const MemoryBudget& device);

// The cheapest change that brings a job whose plan exceeds `limit` bytes under it: "fsdp.backward_prefetch: none needs 1.40 GiB". Changes are tried
// in a fixed order, and the first that fits is named:
//   1. single fsdp keys that keep every bit, from those that only delay communication to those that add some: forward_prefetch_depth: 0,
//      backward_prefetch: backward_post, then none, max_inflight_all_gathers: 1, reshard_after_forward: true, wrap: block, strategy: full_shard;
//   2. single keys that change the order of sums, and say so: reduce: every_micro_batch, then micro_batch_size (the largest that fits);
//   3. pairs of those, in the same order, again those first that keep every bit;
//   4. more ranks, each with as much memory (the fewest that fit).
// Where nothing fits, the least that was found is named instead. num_threads: of the device.
std::string cheapest_fix(const JobConfig& config, const Plan& plan, std::int64_t limit, int num_threads);

// DeviceError where the plan's peak exceeds the budget: one line with both figures and the cheapest fix. The peak is what the allocator will hand
// out, to the byte, and is compared without a margin: what is refused could not have run. What the allocator holds beyond live
// bytes comes on top (its pools take pages of 2 MiB: 4 to 12 MiB on models of 100 to 350 MiB), and so does the process itself: device.memory_limit
// bounds what is live.
void check_memory(const JobConfig& config, const Plan& plan, const MemoryBudget& budget, int num_threads);

}  // namespace tessera
