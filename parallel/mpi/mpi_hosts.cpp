#include "parallel/mpi/mpi_hosts.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/error.h"

namespace tessera {

HostMap discover_hosts() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized != 0, "communicator: MPI is not initialised");
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  // A host is known by its first world rank, since names need not be unique.
  int first = rank;
  MPI_Bcast(&first, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);

  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  std::vector<int> firsts(static_cast<std::size_t>(size));
  std::vector<std::array<char, MPI_MAX_PROCESSOR_NAME>> names(static_cast<std::size_t>(size));
  MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Allgather(name.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR,
                MPI_COMM_WORLD);

  HostMap map;
  std::vector<int> known;
  for (const int host_first : firsts) {
    const auto found = std::find(known.begin(), known.end(), host_first);
    map.host_of_world.push_back(static_cast<int>(found - known.begin()));
    if (found != known.end()) continue;
    known.push_back(host_first);
    map.host_names.emplace_back(names[static_cast<std::size_t>(host_first)].data());
  }
  return map;
}

}  // namespace tessera
