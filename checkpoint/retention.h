// Which checkpoints a run gives up.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct RetentionPolicy {
  std::int64_t keep_latest = 0;  // so many of the newest; 0: all
  std::int64_t keep_every = 0;   // steps that this divides stay for good; 0: none
  friend bool operator==(const RetentionPolicy&, const RetentionPolicy&) = default;
};

// Of the steps that have a checkpoint, those to delete, ascending. The newest is never among them.
std::vector<std::int64_t> steps_to_delete(std::vector<std::int64_t> steps, const RetentionPolicy& policy);

}  // namespace tessera
