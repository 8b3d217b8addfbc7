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

}  // namespace tessera
