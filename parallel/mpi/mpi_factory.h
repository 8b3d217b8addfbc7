// The factory behind make_mpi_factory, which make_auto_factory shares.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/mpi/mpi_handle.h"

namespace tessera::mpi {

class MpiFactory final : public CommunicatorFactory {
 public:
  // Collective over MPI_COMM_WORLD.
  MpiFactory(const Placement& placement, const CommunicatorOptions& options);

  // Collective over the members; non-members return at once.
  std::unique_ptr<Communicator> create(const Group& group, const CommunicatorHooks& hooks) override;
  std::string_view backend() const override { return "mpi"; }

 private:
  Placement placement_;
  CommunicatorOptions options_;
  CommHandle world_;  // a duplicate: messages of others in MPI_COMM_WORLD never meet ours
  int logical_rank_ = 0;
  int num_created_ = 0;
};

}  // namespace tessera::mpi
