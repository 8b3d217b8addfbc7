// The tree of ops/optimizer_ops.h, weak so that the operators' own (faster, same bits) takes its place as soon as it is
// linked.
#include <vector>

#include "runtime/ops/optimizer_ops.h"

namespace tessera::ops {

__attribute__((weak)) void tree_sum(std::span<float> destination, std::span<const float* const> sources) {
  std::vector<float> level(sources.size());
  for (std::size_t i = 0; i < destination.size(); ++i) {
    for (std::size_t k = 0; k < sources.size(); ++k) level[k] = sources[k][i];
    for (std::size_t n = sources.size(); n > 1; n = (n + 1) / 2) {
      for (std::size_t k = 0; k < n; k += 2) level[k / 2] = k + 1 < n ? level[k] + level[k + 1] : level[k];
    }
    destination[i] = level[0];
  }
}

}  // namespace tessera::ops
