#include "runtime/train/world_exchange.h"

#include <algorithm>

namespace tessera {

// Two calls: how long the texts are, then all of them, each in as much room as the longest takes.
std::vector<std::string> WorldExchange::exchange(const std::string& text) {
  const auto num_ranks = static_cast<std::size_t>(world_.size());
  const CollectiveTag tag{.what = "checkpoint", .phase = "exchange"};
  std::vector<std::int64_t> sizes(num_ranks, 0);  // by logical rank
  const auto own_size = static_cast<std::int64_t>(text.size());
  world_
      .all_gather({.input = &own_size, .output = sizes.data(), .count = 1, .dtype = DType::kInt64, .tag = tag}, stream_)
      .synchronize();
  std::vector<std::string> texts(num_ranks);
  const auto room = static_cast<std::size_t>(*std::ranges::max_element(sizes));
  if (room == 0) return texts;
  std::string own = text, all(room * num_ranks, '\0');
  own.resize(room);
  world_
      .all_gather({.input = own.data(), .output = all.data(), .count = room, .dtype = DType::kUInt8, .tag = tag},
                  stream_)
      .synchronize();
  for (std::size_t logical = 0; logical < num_ranks; ++logical) {
    const auto world_rank = static_cast<std::size_t>(placement_.world_of_logical(static_cast<int>(logical)));
    texts[world_rank] = all.substr(logical * room, static_cast<std::size_t>(sizes[logical]));
  }
  return texts;
}

}  // namespace tessera
