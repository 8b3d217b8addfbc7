// Whether the members of each communicator make equal calls in equal order.
#pragma once

#include <optional>
#include <string>

#include "runtime/program/proof_job.h"

namespace tessera {

// In words, the first call that differs, on the communicator where that is earliest; nothing where all match.
//   call 3 of dp:0/gather: ranks 0, 2, 3 make all_gather block.0 (forward), rank 1 makes all_gather block.1 (forward)
//   dp:0/gather: rank 1 makes one call more, all_gather block.1 (backward) as call 4, which rank 0 never makes
std::optional<std::string> find_mismatch(const ProofJob& job);

}  // namespace tessera
