// The arenas of all ranks of a host, as one rank sees them.
#pragma once

#include <memory>
#include <vector>

#include "parallel/host_map.h"
#include "parallel/shm/arena.h"

namespace tessera::shm {

// Shared by the factory and its communicators, so that the memory outlives whoever still reads it.
struct ShmWorld {
  explicit ShmWorld(int num_local_ranks) : own(num_local_ranks) {}

  Arena own;
  std::vector<Mapping> peers;    // by local rank; empty at the own place
  std::vector<std::byte*> base;  // by world rank; nullptr for ranks of other hosts
};

// Collective over MPI_COMM_WORLD.
std::shared_ptr<ShmWorld> introduce(const HostMap& hosts, double timeout_seconds);

}  // namespace tessera::shm
