// Collectives over MPI with host memory, for groups that span hosts. Needs MPI_THREAD_MULTIPLE. MPI's own types stay
// out of this header.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/mesh.h"

namespace tessera {

// Collective over MPI_COMM_WORLD, which must be initialised. placement maps world ranks (MPI) to logical ranks
// (groups).
std::unique_ptr<CommunicatorFactory> make_mpi_factory(const Placement& placement,
                                                      const CommunicatorOptions& options = {});

// Groups whose members share a host use shm, the others mpi (collectives.backend: auto).
std::unique_ptr<CommunicatorFactory> make_auto_factory(const Placement& placement,
                                                       const CommunicatorOptions& options = {});

}  // namespace tessera
