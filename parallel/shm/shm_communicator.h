// Collectives between the ranks of one host through shared memory. Each rank owns an anonymous memory file whose
// descriptor it hands to its peers: it has no name to leave behind, does not count against the size of /dev/shm, and
// vanishes with its last process.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/mesh.h"

namespace tessera {

// Collective over MPI_COMM_WORLD (MPI only introduces the processes to each other). Groups that span hosts are refused
// (CollectiveError naming both hosts).
std::unique_ptr<CommunicatorFactory> make_shm_factory(const Placement& placement,
                                                      const CommunicatorOptions& options = {});

}  // namespace tessera
