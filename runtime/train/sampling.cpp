#include "runtime/train/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/math.h"
#include "runtime/base/rng.h"

namespace tessera {
namespace {

// The token of the largest logit, lowest id among equals.
std::size_t argmax(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) throw NonFiniteError(fmt::format("sampling: the logit of token {} is NaN", i));
    if (logits[i] > logits[best]) best = i;
  }
  if (logits[best] == -std::numeric_limits<float>::infinity()) {
    throw NonFiniteError(fmt::format("sampling: all {} logits are -inf", logits.size()));
  }
  return best;
}

// exp((logit - largest) / temperature): at most 1, and 1 for the largest.
std::vector<double> relative_probabilities(std::span<const float> logits, double largest, double temperature) {
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double logit = logits[i];
    weights[i] = logit == largest ? 1.0 : math::exp((logit - largest) / temperature);
  }
  return weights;
}

// Sets the weights that top-k and top-p leave out to 0.
void filter(std::vector<double>& weights, std::int64_t top_k, double top_p) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
  std::size_t kept = order.size();
  if (top_k > 0) kept = std::min(kept, static_cast<std::size_t>(top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), likelier);
  if (top_p < 1) {
    double total = 0, reached = 0;
    for (std::size_t i = 0; i < kept; ++i) total += weights[order[i]];
    std::size_t num = 0;
    while (num < kept && (num == 0 || reached < top_p * total)) reached += weights[order[num++]];
    kept = num;
  }
  for (std::size_t i = kept; i < order.size(); ++i) weights[order[i]] = 0;
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    throw ConfigError(fmt::format("temperature {}, expected a number of at least 0", options.temperature));
  }
  if (options.top_k < 0) throw ConfigError(fmt::format("top-k {}, expected at least 0 (0: off)", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw ConfigError(fmt::format("top-p {}, expected a number above 0 and at most 1", options.top_p));
}

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, std::int64_t position) {
  check_sampling(options);
  require(!logits.empty() && position >= 0, "sample_token: at least one logit, position at least 0");
  const std::size_t best = argmax(logits);
  if (options.temperature == 0) return static_cast<std::int64_t>(best);

  std::vector<double> weights = relative_probabilities(logits, logits[best], options.temperature);
  if (options.top_k > 0 || options.top_p < 1) filter(weights, options.top_k, options.top_p);

  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double target =
      CounterRng(options.seed, RandomPurpose::kSample, 0).uniform(static_cast<std::uint64_t>(position)) * total;
  double reached = 0;
  std::size_t chosen = best;  // where rounding leaves the target at the very end
  for (std::size_t i = 0; i < weights.size(); ++i) {
    reached += weights[i];
    if (weights[i] > 0 && target < reached) {
      chosen = i;
      break;
    }
  }
  return static_cast<std::int64_t>(chosen);
}

}  // namespace tessera
