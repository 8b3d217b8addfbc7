// Shared memory where a group has one host, MPI where it has several.
#include <mpi.h>

#include <utility>

#include "parallel/mpi/mpi_communicator.h"
#include "parallel/mpi/mpi_factory.h"
#include "parallel/mpi/mpi_hosts.h"
#include "parallel/shm/shm_factory.h"

namespace tessera {
namespace {

class AutoFactory final : public CommunicatorFactory {
 public:
  AutoFactory(const Placement& placement, const CommunicatorOptions& options)
      : placement_(placement), options_(options), hosts_(discover_hosts()), shm_(placement, hosts_, options) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    alone_ = hosts_.ranks_beside(rank).size() == 1;
  }

  std::unique_ptr<Communicator> create(const Group& group, const CommunicatorHooks& hooks) override {
    if (hosts_.on_one_host(group, placement_)) return shm_.create(group, hooks);
    // Made when the first group needs it, which every rank finds at the same place of the same list.
    if (mpi_ == nullptr) mpi_ = std::make_unique<mpi::MpiFactory>(placement_, options_);
    return mpi_->create(group, hooks);
  }

  // A rank that is alone on its host has nobody to read its memory.
  MemoryResource* shared_memory() override { return alone_ ? nullptr : shm_.shared_memory(); }
  std::string_view backend() const override { return "auto"; }

 private:
  Placement placement_;
  CommunicatorOptions options_;
  HostMap hosts_;
  shm::ShmFactory shm_;
  std::unique_ptr<mpi::MpiFactory> mpi_;
  bool alone_ = false;
};

}  // namespace

std::unique_ptr<CommunicatorFactory> make_auto_factory(const Placement& placement, const CommunicatorOptions& options) {
  return std::make_unique<AutoFactory>(placement, options);
}

}  // namespace tessera
