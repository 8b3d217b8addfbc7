// A communicator over MPI messages between the members of one group.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mpi/mpi_handle.h"

namespace tessera::mpi {

// comm: rank = position in the group. world_ranks: by position.
std::unique_ptr<Communicator> make_mpi_communicator(const Group& group, int position, const CommunicatorHooks& hooks,
                                                    const CommunicatorOptions& options, CommHandle comm,
                                                    std::vector<int> world_ranks);

}  // namespace tessera::mpi
