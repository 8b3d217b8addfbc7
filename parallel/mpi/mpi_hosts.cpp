#include "parallel/mpi/mpi_hosts.h"

#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <type_traits>

#include "parallel/mpi/quiet_wait.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

struct Identity {
  std::uint64_t kernel = 0;
  std::uint64_t network = 0;
  std::array<char, 64> name{};
  bool same_host(const Identity& other) const { return kernel == other.kernel && network == other.network; }
};
static_assert(std::is_trivially_copyable_v<Identity>);

Identity own_identity() {
  Identity own;
  gethostname(own.name.data(), own.name.size() - 1);
  // Drawn by the kernel at boot; where it is hidden, the host's name has to do.
  std::string boot;
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot)) boot = own.name.data();
  own.kernel = hash_string(boot);
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) == 0) own.network = network.st_ino;
  return own;
}

}  // namespace

HostMap discover_hosts() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized != 0, "communicator: MPI is not initialised");
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Identity own = own_identity();
  std::vector<Identity> all(static_cast<std::size_t>(size));
  mpi::all_gather_quietly(&own, all.data(), sizeof own);

  HostMap map;
  std::vector<Identity> hosts;
  for (const Identity& rank : all) {
    const auto found =
        std::find_if(hosts.begin(), hosts.end(), [&](const Identity& host) { return host.same_host(rank); });
    map.host_of_world.push_back(static_cast<int>(found - hosts.begin()));
    if (found != hosts.end()) continue;
    hosts.push_back(rank);
    map.host_names.emplace_back(rank.name.data());
  }
  return map;
}

}  // namespace tessera
