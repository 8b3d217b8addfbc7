// Which instructions can be on a cycle at all. Most that never complete merely come after one.
#pragma once

#include <vector>

#include "runtime/program/dry_run.h"

namespace tessera {

// By class, by instruction.
using CycleCandidates = std::vector<std::vector<bool>>;

// Of a job with one rank per class: what never completes, and what something else that is left waits for. That leaves cycles
// and what is between them. progress: where the dry run ended.
CycleCandidates find_candidates(const RankedPrograms& job, const std::vector<ProgramOrder>& orders,
                                const DryRunEnd& progress);

}  // namespace tessera
