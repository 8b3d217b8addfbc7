// The shortest cycle of instructions that wait for each other.
//
// Nodes are instructions; a call is one node of all its members. An instruction waits for those that its program names,
// for all earlier ones on its stream, and for all earlier ones that block its host. The latter two count at any distance,
// not only from one to the next: then the shortest cycle is the one to be read, a line for "all_gather comes after
// reduce_scatter", however much stands between them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/program/cycle_candidates.h"

namespace tessera {

struct WaitEdge {
  enum class Reason : std::uint8_t { kWait, kHost, kStream };
  int rank = 0;
  int waiting = 0, awaited = 0;  // instructions of this rank's program
  Reason reason = Reason::kWait;
};

// What is awaited in one edge is what waits in the next, the first after the last. It starts at a call.
using WaitCycle = std::vector<WaitEdge>;

// Empty where there is none among the candidates, which are all instructions that a cycle can have.
// projection: of a job onto which this one projects, the shortest cycle: none here is shorter, and the search begins at its
// first call, where one of that length mostly is. Its ranks are the classes of this job. Empty: nothing is known.
WaitCycle find_shortest_cycle(const RankedPrograms& job, const CycleCandidates& candidates,
                              const WaitCycle& projection = {});

}  // namespace tessera
