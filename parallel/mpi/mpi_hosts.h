// Asks MPI which ranks share a host.
#pragma once

#include "parallel/host_map.h"

namespace tessera {

// Collective over MPI_COMM_WORLD. Hosts are MPI's shared-memory domains.
HostMap discover_hosts();

}  // namespace tessera
