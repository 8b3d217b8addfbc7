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

// The token at `position` of the text: a function of (logits, options, position) alone. Filters in the order temperature, top-k, top-p, as
// Hugging Face does; top-p keeps the smallest set of most likely tokens whose probability reaches it, at least one.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, std::int64_t position);

}  // namespace tessera
