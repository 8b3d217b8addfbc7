// A step program on an imagined device: when its instructions run, how much communication hides behind products, and what the gathered units
// hold. A model with few parameters, for comparing policies; its seconds are only as good as its rates.
//
// The host issues instructions one by one and does not wait for them, save where the program makes it (the agreements at a step's end). Each
// stream runs its instructions in order; one starts when it is issued, its stream is free and what it waits for is over. A segment takes its
// FLOPs ÷ flops_per_second (backward 2 × forward, the head with its loss 3 ×), a collective call_seconds + the larger of the bytes it sends and
// receives ÷ bytes_per_second; all else takes no time. Streams do not slow each other down.
//
// Gathered memory comes from a caching allocator: a block is taken when its unshard is issued and given back when its reshard is issued, but the
// gather stream may have it again only when the compute stream has passed that reshard. If none of the size is free by then, another is taken
// from the device. So a host that runs far ahead holds more blocks than units are ever full.
//
// The rate limit (PyTorch's limit_all_gathers) keeps the host back: before it issues an unshard, it waits until fewer than `rate_limit` of the
// reshards that it has issued are still ahead of the compute stream. It counts issued reshards, not full units: a unit that nobody has asked to
// reshard (the root, a prefetched neighbour) can never hold up the host, which alone could release it. `allocated` counts from issue to issue and
// knows nothing of the limit; `reserved` shows it.
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/policy.h"
#include "runtime/program/parameter_spec.h"
#include "runtime/program/step_program.h"

namespace tessera {

struct DeviceModel {
  double flops_per_second = 100e12;
  double bytes_per_second = 25e9;  // of one rank, each way
  double call_seconds = 20e-6;     // of a collective of no bytes
  double issue_seconds = 200e-6;   // the host's, per instruction: some two dozen kernels of a segment
  // false: the host waits for each compute instruction, as this runtime's CPU device makes it do (its compute stream is inline).
  bool host_runs_ahead = true;
  int rate_limit = 0;  // 0: none
};

struct Simulation {
  double step_seconds = 0;
  double compute_seconds = 0, gather_seconds = 0, reduce_seconds = 0;  // each stream's busy time
  double communication_seconds = 0;                                    // the union of gather and reduce
  double overlapped_seconds = 0;          // of that, while compute is busy; the rest is exposed
  double gathers_overlapped_seconds = 0;  // of gather_seconds, while compute is busy
  std::int64_t allocated_peak = 0;        // bytes, the ledger's
  std::int64_t reserved_peak = 0;  // the ledger's peak of all that is not gathered, and the gathered blocks ever taken
  double exposed_seconds() const { return communication_seconds - overlapped_seconds; }
};

Simulation simulate(const StepProgram& program, const ModelSpec& model, const std::vector<UnitSpec>& units,
                    const ShardGroups& groups, const DeviceModel& device);

}  // namespace tessera
