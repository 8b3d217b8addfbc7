// Which ranks share a host, agreed over MPI.
#pragma once

#include "parallel/host_map.h"

namespace tessera {

// Collective over MPI_COMM_WORLD. Ranks share a host where they share a running kernel and a network namespace: then, and only then, can one
// hand the other a memory file. (MPI_COMM_TYPE_SHARED goes by host name, which containers of one machine may share or not.)
HostMap discover_hosts();

}  // namespace tessera
