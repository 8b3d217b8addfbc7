// Ranks as threads of one process, for tests: the same interface, order and bits as the real backends.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace tessera {

// One factory per rank; they share a world and may be used from one thread each.
std::vector<std::unique_ptr<CommunicatorFactory>> make_threads_world(int num_ranks,
                                                                     const CommunicatorOptions& options = {});

}  // namespace tessera
