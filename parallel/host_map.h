// Which ranks share a host.
#pragma once

#include <string>
#include <vector>

#include "parallel/mesh.h"

namespace tessera {

struct HostMap {
  std::vector<int> host_of_world;       // world rank → host, numbered by first appearance
  std::vector<std::string> host_names;  // by host
  // Members are logical ranks.
  bool on_one_host(const Group& group, const Placement& placement) const;
  // World ranks of the host of `world_rank`, ascending.
  std::vector<int> ranks_beside(int world_rank) const;
};

}  // namespace tessera
