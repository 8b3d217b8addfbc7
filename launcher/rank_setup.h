// What every job of ranks needs before it has a device: communicators, bindings, memory.
#pragma once

#include <memory>
#include <vector>

#include "launcher/binding.h"
#include "launcher/mpi_session.h"
#include "launcher/topology.h"
#include "parallel/communicator.h"
#include "parallel/mesh.h"
#include "runtime/config/job_config.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/memory_budget.h"

namespace tessera {

std::unique_ptr<CommunicatorFactory> make_factory(const CollectivesConfig& config, const Placement& placement);

// What this rank finds out on its own, before it talks to the others.
struct LocalHost {
  Topology machine;
  std::vector<int> cpuset;
};
LocalHost this_host();

// The bindings of all ranks, this rank's with its threads.
struct JobBinding {
  RankBinding mine;
  std::vector<BoundRank> all;
};
// Collective.
JobBinding agree_binding(MpiSession& session, const LocalHost& here, const DeviceConfig& config);

// Collective. The device of this rank; its threads, the calling one included, are bound.
std::unique_ptr<CpuDevice> make_device(MpiSession& session, const RankBinding& binding);

// The ranks of a host share its memory evenly.
MemoryBudget share_of_host(const MpiSession& session);

}  // namespace tessera
