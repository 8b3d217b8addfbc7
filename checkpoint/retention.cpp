#include "checkpoint/retention.h"

#include <algorithm>

namespace tessera {

std::vector<std::int64_t> steps_to_delete(std::vector<std::int64_t> steps, const RetentionPolicy& policy) {
  const auto num_kept = static_cast<std::size_t>(policy.keep_latest);
  if (num_kept == 0 || steps.size() <= num_kept) return {};
  std::ranges::sort(steps);
  steps.resize(steps.size() - num_kept);
  std::erase_if(steps, [&](std::int64_t step) { return policy.keep_every > 0 && step % policy.keep_every == 0; });
  return steps;
}

}  // namespace tessera
