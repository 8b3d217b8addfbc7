// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the largest logit, lowest id among equals
  std::int64_t top_k = 0;    // 0: off
  double top_p = 1.0;        // 1: off
  std::uint64_t seed = 0;
};

// ConfigError for a negative temperature or top_k, or a top_p outside (0, 1].
void check_sampling(const SamplingOptions& options);

// The token at `position` of the text: a function of (logits, options, position) alone. Filters in the order
// temperature, top-k, top-p, as Hugging Face does; top-k keeps exactly k (lowest ids among equals); top-p keeps the
// smallest set of most likely tokens whose probability, among what top-k kept, reaches it, at least one. -inf is a
// token that never comes; +inf one that always does.
//
// NonFiniteError where a logit is NaN or all are -inf; ConfigError as check_sampling().
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, std::int64_t position);

}  // namespace tessera
