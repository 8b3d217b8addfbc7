// The exchange of a running job: texts over a communicator of all its ranks.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/rank_exchange.h"
#include "parallel/communicator.h"
#include "parallel/mesh.h"

namespace tessera {

// Ranks are world ranks, as in every message. An exchange is two all_gathers, of the lengths and of the texts padded to the longest: each rank
// receives num_ranks × longest bytes, about 40 for each MiB of the whole state where all hold equal parts.
class CommunicatorExchange final : public RankExchange {
 public:
  // world: the group of all ranks, used by nobody else while an exchange runs; both outlive the object.
  CommunicatorExchange(Communicator& world, const Placement& placement, StreamView stream);

  int rank() const override { return placement_.world_of_logical(world_.rank()); }
  int num_ranks() const override { return world_.size(); }
  std::vector<std::string> exchange(const std::string& text) override;

 private:
  Communicator& world_;
  const Placement& placement_;
  StreamView stream_;
};

}  // namespace tessera
