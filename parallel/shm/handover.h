// Gives every rank of a host the memory files of all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/host_map.h"
#include "parallel/shm/arena.h"

namespace tessera::shm {

struct PeerFile {
  Descriptor file;  // none at the own place
  std::uint64_t bytes = 0;
};

// Collective over MPI_COMM_WORLD. Returns the files of the ranks beside the own one, in their order. Abstract unix sockets carry the
// descriptors: such a name is no file, and is gone with its socket. Throws CollectiveError on all ranks if one fails.
std::vector<PeerFile> exchange_files(const HostMap& hosts, const Arena& own, double timeout_seconds);

}  // namespace tessera::shm
