#include "checkpoint/rank_exchange.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr char kDone = '+', kFailed = '-';

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return kDone + work();
  } catch (const Error& error) {
    return kFailed + error.line();
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

}  // namespace

std::vector<std::string> agree(RankExchange& ranks, const std::function<std::string()>& work) {
  std::vector<std::string> outcomes = ranks.exchange(outcome_of(work));
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (!outcomes[rank].starts_with(kFailed)) continue;
    const std::string message = outcomes[rank].substr(1);
    throw CheckpointError(outcomes.size() == 1 ? message : fmt::format("rank {}: {}", rank, message));
  }
  for (std::string& outcome : outcomes) outcome.erase(0, 1);
  return outcomes;
}

}  // namespace tessera
