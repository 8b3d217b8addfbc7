// A communicator over the blocks of one group's members.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/shm/control.h"
#include "parallel/shm/shm_world.h"

namespace tessera::shm {

// blocks and world_ranks: by position in the group, the own one included.
std::unique_ptr<Communicator> make_shm_communicator(const Group& group, int position, const CommunicatorHooks& hooks,
                                                    const CommunicatorOptions& options, std::shared_ptr<ShmWorld> world,
                                                    std::vector<Block> blocks, std::vector<int> world_ranks);

}  // namespace tessera::shm
