// The permutation world rank → logical rank that a job uses, and why.
#pragma once

#include <string>

#include "parallel/mesh.h"
#include "runtime/config/job_config.h"

namespace tessera {

struct PlacementChoice {
  Placement placement;
  std::string reason;  // for the log: "canonical: …"
};

// mesh.placement `canonical`: logical rank = world rank. `auto` is the same while only dp is divided: every group is
// then the whole world, and no order of it is better than another.
PlacementChoice choose_placement(const MeshConfig& config, const MeshShape& shape);

// Neighbours of dp that share a host, where that number is one for all hosts; 0: it is not. host_of_world: by world rank.
std::int64_t dp_neighbours_per_host(const std::vector<std::string>& host_of_world, const Placement& placement,
                                    const MeshShape& shape);

}  // namespace tessera
