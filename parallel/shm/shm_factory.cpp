#include "parallel/shm/shm_factory.h"

#include <fmt/format.h>
#include <mpi.h>

#include <utility>

#include "parallel/mpi/mpi_hosts.h"
#include "parallel/shm/control.h"
#include "parallel/shm/shm_communicator.h"
#include "parallel/shm/shm_group.h"
#include "runtime/base/error.h"

namespace tessera {
namespace shm {
namespace {

constexpr std::size_t kPage = 4096;

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

}  // namespace

ShmFactory::ShmFactory(const Placement& placement, HostMap hosts, const CommunicatorOptions& options)
    : placement_(placement),
      hosts_(std::move(hosts)),
      options_(options),
      world_(introduce(hosts_, options.timeout_seconds)),
      logical_rank_(placement.logical_of_world[static_cast<std::size_t>(world_rank())]),
      next_block_(placement.logical_of_world.size()) {}

std::unique_ptr<Communicator> ShmFactory::create(const Group& group, const CommunicatorHooks& hooks) {
  const auto host_of = [&](int logical) {
    return hosts_.host_names[static_cast<std::size_t>(
        hosts_.host_of_world[static_cast<std::size_t>(placement_.world_of_logical(logical))])];
  };
  if (!hosts_.on_one_host(group, placement_)) {
    int other = group.members.back();
    for (const int member : group.members) {
      if (!hosts_.on_one_host({group.axis, group.index, {group.members.front(), member}}, placement_)) other = member;
    }
    throw CollectiveError(
        fmt::format("shm: {} spans hosts {} and {}", group.name(), host_of(group.members.front()), host_of(other)),
        "set collectives.backend: auto, or mpi");
  }
  const int size = static_cast<int>(group.members.size());
  const std::size_t bytes = (Block::size_bytes(size) + kPage - 1) / kPage * kPage;
  const int position = group.position_of(logical_rank_);
  std::vector<Block> blocks;
  std::vector<int> world_ranks;
  for (const int member : group.members) {
    std::size_t& next = next_block_[static_cast<std::size_t>(member)];
    require(next + bytes <= kControlBytes, "shm: too many groups for the control part of an arena");
    world_ranks.push_back(placement_.world_of_logical(member));
    // The arenas of another host's ranks are not mapped here, and not asked for: its groups have no member here.
    if (position >= 0) blocks.emplace_back(world_->base[static_cast<std::size_t>(world_ranks.back())], next, size);
    next += bytes;
  }
  if (position < 0) return nullptr;
  return make_shm_communicator(group, position, hooks, options_, world_, std::move(blocks), std::move(world_ranks));
}

}  // namespace shm

std::unique_ptr<CommunicatorFactory> make_shm_factory(const Placement& placement, const CommunicatorOptions& options) {
  return std::make_unique<shm::ShmFactory>(placement, discover_hosts(), options);
}

}  // namespace tessera
