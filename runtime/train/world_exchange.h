// The texts that ranks exchange while they save and load, by collectives of the world group.
#pragma once

#include "checkpoint/rank_exchange.h"
#include "parallel/communicator.h"

namespace tessera {

class WorldExchange final : public RankExchange {
 public:
  // References outlive the object. Ranks are world ranks: messages name those, and world rank 0 owns the run directory.
  WorldExchange(Communicator& world, StreamView stream, const Placement& placement)
      : world_(world), stream_(stream), placement_(placement) {}
  int rank() const override { return placement_.world_of_logical(world_.rank()); }
  int num_ranks() const override { return world_.size(); }
  std::vector<std::string> exchange(const std::string& text) override;

 private:
  Communicator& world_;
  StreamView stream_;
  const Placement& placement_;
};

}  // namespace tessera
