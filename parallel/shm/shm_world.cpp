#include "parallel/shm/shm_world.h"

#include <mpi.h>

#include "parallel/shm/handover.h"

namespace tessera::shm {

std::shared_ptr<ShmWorld> introduce(const HostMap& hosts, double timeout_seconds) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  const std::vector<int> locals = hosts.ranks_beside(world_rank);
  auto world = std::make_shared<ShmWorld>(static_cast<int>(locals.size()));

  const std::vector<PeerFile> files = exchange_files(hosts, world->own, timeout_seconds);
  world->base.resize(hosts.host_of_world.size());
  world->peers.resize(locals.size());
  for (std::size_t local = 0; local < locals.size(); ++local) {
    const auto rank = static_cast<std::size_t>(locals[local]);
    if (locals[local] == world_rank) {
      world->base[rank] = world->own.base();
    } else {
      world->peers[local] = Mapping(files[local].file, files[local].bytes, false);
      world->base[rank] = world->peers[local].base();
    }
  }
  return world;
}

}  // namespace tessera::shm
