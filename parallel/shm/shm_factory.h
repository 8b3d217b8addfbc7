// The factory behind make_shm_factory, which make_auto_factory shares.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/host_map.h"
#include "parallel/shm/shm_world.h"

namespace tessera::shm {

class ShmFactory final : public CommunicatorFactory {
 public:
  // Collective over MPI_COMM_WORLD.
  ShmFactory(const Placement& placement, HostMap hosts, const CommunicatorOptions& options);

  std::unique_ptr<Communicator> create(const Group& group, const CommunicatorHooks& hooks) override;
  MemoryResource* shared_memory() override { return &world_->own; }
  std::string_view backend() const override { return "shm"; }

 private:
  Placement placement_;
  HostMap hosts_;
  CommunicatorOptions options_;
  std::shared_ptr<ShmWorld> world_;
  int logical_rank_;
  // Where the next block of each logical rank begins in its arena. Everybody counts for everybody, which the canonical
  // order makes possible: no message is needed to create a group.
  std::vector<std::size_t> next_block_;
};

}  // namespace tessera::shm
