// Waiting for MPI without polling at full speed: MPI's own blocking calls burn a core each, which stalls everybody where ranks
// outnumber cores (a barrier over TCP took 60 ms so).
#pragma once

#include <mpi.h>

#include <cstddef>

namespace tessera::mpi {

// Completes one request.
void wait_quietly(MPI_Request request);

// MPI_Allgather of `bytes` bytes per rank over MPI_COMM_WORLD. Collective.
void all_gather_quietly(const void* own, void* all, std::size_t bytes);

}  // namespace tessera::mpi
