// What it costs that every call knows who it is: part of `tessera bench collectives`.
#pragma once

#include <vector>

#include "tools/figures.h"

namespace tessera {

// Collective over MPI_COMM_WORLD (one host). Nanoseconds of a small all_gather over shm at each level of
// collectives.fingerprint, and of the same call behind a barrier and two all_gathers (what PyTorch's
// TORCH_DISTRIBUTED_DEBUG=DETAIL does before each call), all taking turns; then what each adds per call, times the calls
// of a step, over the time of a step, for a tiny model and, where `large`, for GPT-2 124M. Figures on world rank 0.
std::vector<Figure> measure_fingerprints(int repeats, bool large);

}  // namespace tessera
