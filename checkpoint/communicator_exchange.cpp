#include "checkpoint/communicator_exchange.h"

#include <algorithm>

namespace tessera {

CommunicatorExchange::CommunicatorExchange(Communicator& world, const Placement& placement, StreamView stream)
    : world_(world), placement_(placement), stream_(stream) {}

std::vector<std::string> CommunicatorExchange::exchange(const std::string& text) {
  const auto num_ranks = static_cast<std::size_t>(world_.size());
  const CollectiveTag tag{.what = "checkpoint", .phase = "agree"};
  const std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(num_ranks);
  world_
      .all_gather({.input = &length, .output = lengths.data(), .count = 1, .dtype = DType::kUInt64, .tag = tag},
                  stream_)
      .synchronize();

  const std::uint64_t longest = std::max<std::uint64_t>(1, *std::ranges::max_element(lengths));
  std::string padded = text, all(num_ranks * longest, '\0');
  padded.resize(longest);
  world_
      .all_gather({.input = padded.data(), .output = all.data(), .count = longest, .dtype = DType::kUInt8, .tag = tag},
                  stream_)
      .synchronize();

  // A communicator orders its members by logical rank.
  std::vector<std::string> texts(num_ranks);
  for (std::size_t logical = 0; logical < num_ranks; ++logical)
    texts[static_cast<std::size_t>(placement_.world_of_logical(static_cast<int>(logical)))] =
        all.substr(logical * longest, lengths[logical]);
  return texts;
}

}  // namespace tessera
