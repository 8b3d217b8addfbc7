#include "parallel/host_map.h"

#include <algorithm>

namespace tessera {

bool HostMap::on_one_host(const Group& group, const Placement& placement) const {
  const auto host_of = [&](int logical) {
    return host_of_world[static_cast<std::size_t>(placement.world_of_logical(logical))];
  };
  return std::all_of(group.members.begin(), group.members.end(),
                     [&](int member) { return host_of(member) == host_of(group.members.front()); });
}

std::vector<int> HostMap::ranks_beside(int world_rank) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < host_of_world.size(); ++rank) {
    if (host_of_world[rank] == host_of_world[static_cast<std::size_t>(world_rank)])
      ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace tessera
