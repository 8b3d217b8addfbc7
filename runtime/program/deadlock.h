// Whether the calls of a job, which match, can all be made: or which instructions wait for each other.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/proof_job.h"

namespace tessera {

// The shortest cycle, a line for each wait; nothing where the job cannot deadlock.
//   rank 0: reduce_scatter root (instruction 9, call 0 of dp:0/reduce) waits for all_gather root (…)
//   rank 1: all_gather root (instruction 3, call 2 of dp:0/gather) comes after wait reduce root (…) on its host
std::vector<std::string> find_deadlock(const ProofJob& job);

}  // namespace tessera
