#include "launcher/placement.h"

#include "runtime/base/error.h"

namespace tessera {

PlacementChoice choose_placement(const MeshConfig& config, const MeshShape& shape) {
  require(config.placement == "auto" || config.placement == "canonical",
          "mesh.placement was checked when it was loaded");
  PlacementChoice choice{Placement::canonical(shape.num_ranks()), "placement canonical"};
  if (config.placement == "auto") {
    choice.reason +=
        shape.pp == 1 && shape.tp == 1 ? " (auto: only dp is divided, so no order is better than another)" : " (auto)";
  }
  return choice;
}

std::int64_t dp_neighbours_per_host(const std::vector<std::string>& host_of_world, const Placement& placement,
                                    const MeshShape& shape) {
  std::int64_t length = 0;
  for (const Group& group : canonical_groups(shape)) {
    if (group.axis != Axis::kDp) continue;
    const auto host = [&](std::size_t member) {
      return host_of_world.at(static_cast<std::size_t>(placement.world_of_logical(group.members[member])));
    };
    std::size_t first = 0;
    for (std::size_t member = 1; member <= group.members.size(); ++member) {
      if (member < group.members.size() && host(member) == host(first)) continue;
      const auto run = static_cast<std::int64_t>(member - first);
      if (length != 0 && run != length) return 0;
      length = run;
      first = member;
    }
  }
  return length;
}

}  // namespace tessera
