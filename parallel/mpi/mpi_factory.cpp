#include "parallel/mpi/mpi_factory.h"

#include <mpi.h>

#include <utility>

#include "parallel/mpi/mpi_communicator.h"
#include "parallel/mpi/mpi_group.h"
#include "parallel/mpi/quiet_wait.h"
#include "runtime/base/error.h"

namespace tessera {
namespace mpi {
namespace {

// Tags of MPI_Comm_create_group; every MPI offers at least 32,767.
constexpr int kNumCreateTags = 32'000;

CommHandle duplicate_world() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized != 0, "communicator: MPI is not initialised");
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  require(level == MPI_THREAD_MULTIPLE, "communicator: MPI was not initialised with MPI_THREAD_MULTIPLE");
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(MPI_COMM_WORLD, &world, &request), "MPI_Comm_idup");
  wait_quietly(request);
  return CommHandle(world);
}

}  // namespace

MpiFactory::MpiFactory(const Placement& placement, const CommunicatorOptions& options)
    : placement_(placement), options_(options), world_(duplicate_world()) {
  int rank = 0;
  MPI_Comm_rank(world_.get(), &rank);
  logical_rank_ = placement_.logical_of_world[static_cast<std::size_t>(rank)];
}

std::unique_ptr<Communicator> MpiFactory::create(const Group& group, const CommunicatorHooks& hooks) {
  const int tag = num_created_++ % kNumCreateTags;
  const int position = group.position_of(logical_rank_);
  if (position < 0) return nullptr;
  std::vector<int> world_ranks;
  for (const int member : group.members) world_ranks.push_back(placement_.world_of_logical(member));
  CommHandle handle;
  if (world_ranks.size() > 1) {
    MPI_Group everybody = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_group(world_.get(), &everybody), "MPI_Comm_group");
    check(MPI_Group_incl(everybody, static_cast<int>(world_ranks.size()), world_ranks.data(), &members),
          "MPI_Group_incl");
    const int code = MPI_Comm_create_group(world_.get(), members, tag, &comm);
    MPI_Group_free(&members);
    MPI_Group_free(&everybody);
    check(code, "MPI_Comm_create_group");
    handle = CommHandle(comm);
  }
  return make_mpi_communicator(group, position, hooks, options_, std::move(handle), std::move(world_ranks));
}

}  // namespace mpi

std::unique_ptr<CommunicatorFactory> make_mpi_factory(const Placement& placement, const CommunicatorOptions& options) {
  return std::make_unique<mpi::MpiFactory>(placement, options);
}

}  // namespace tessera
