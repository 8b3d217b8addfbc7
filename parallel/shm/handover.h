// Gives every rank of a host the descriptors of all of them.
#pragma once

#include <mpi.h>

#include <vector>

#include "parallel/shm/arena.h"

namespace tessera::shm {

// Collective over `host`, whose ranks share a kernel and a network namespace. Returns the descriptors by rank; the own
// one is a duplicate. Abstract unix sockets carry them: such a name is no file, and is gone with its socket. Throws
// CollectiveError on all ranks if one fails.
std::vector<Descriptor> exchange_descriptors(MPI_Comm host, const Descriptor& own, double timeout_seconds);

}  // namespace tessera::shm
