#include "parallel/shm/shm_world.h"

#include <mpi.h>

#include "parallel/shm/handover.h"

namespace tessera::shm {

std::shared_ptr<ShmWorld> introduce(const HostMap& hosts, double timeout_seconds) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  const std::vector<int> locals = hosts.ranks_beside(world_rank);
  auto world = std::make_shared<ShmWorld>(static_cast<int>(locals.size()));

  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, hosts.host_of_world[static_cast<std::size_t>(world_rank)], world_rank, &host);
  const std::vector<Descriptor> files = exchange_descriptors(host, world->own.file(), timeout_seconds);
  std::vector<std::uint64_t> sizes(locals.size());
  const std::uint64_t own_size = world->own.size_bytes();
  MPI_Allgather(&own_size, 1, MPI_UINT64_T, sizes.data(), 1, MPI_UINT64_T, host);
  MPI_Comm_free(&host);

  world->base.resize(hosts.host_of_world.size());
  world->peers.resize(locals.size());
  for (std::size_t local = 0; local < locals.size(); ++local) {
    const auto rank = static_cast<std::size_t>(locals[local]);
    if (locals[local] == world_rank) {
      world->base[rank] = world->own.base();
    } else {
      world->peers[local] = Mapping(files[local], sizes[local], false);
      world->base[rank] = world->peers[local].base();
    }
  }
  return world;
}

}  // namespace tessera::shm
