// How fast rotary positions turn each pair of features, and how that is stretched to sequences longer than those of a model's first training.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::ops {

enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3 };

struct RopeFrequencies {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;  // of both scalings: how many times longer sequences get
  // Of kLlama3: a wavelength below original_seq_len / high_freq_factor stays, one above original_seq_len / low_freq_factor is stretched by
  // factor, and between them the two are blended.
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  double original_seq_len = 8192;  // tokens
};

// Radians per position of pair i, i < head_dim / 2:
//   none     f = theta^(-2i / head_dim)                          (Su et al. 2021)
//   linear   f / factor                                          (Chen et al. 2023: positions are interpolated)
//   llama3   s = (original_seq_len · f / 2π - low) / (high - low), cut to 0 … 1;  (1 - s) · f / factor + s · f     (Llama 3.1)
std::vector<double> rope_frequencies(std::int64_t head_dim, const RopeFrequencies& options);

}  // namespace tessera::ops
