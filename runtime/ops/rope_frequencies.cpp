#include "runtime/ops/rope_frequencies.h"

#include <algorithm>
#include <numbers>

#include "runtime/base/math.h"

namespace tessera::ops {
namespace {

double scaled(double frequency, const RopeFrequencies& options) {
  if (options.scaling == RopeScaling::kNone) return frequency;
  if (options.scaling == RopeScaling::kLinear) return frequency / options.factor;
  const double turns = options.original_seq_len * frequency / (2 * std::numbers::pi);  // over the original length
  const double kept =
      std::clamp((turns - options.low_freq_factor) / (options.high_freq_factor - options.low_freq_factor), 0.0, 1.0);
  return (1 - kept) * frequency / options.factor + kept * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(std::int64_t head_dim, const RopeFrequencies& options) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    frequencies.push_back(scaled(math::pow(options.theta, exponent), options));
  }
  return frequencies;
}

}  // namespace tessera::ops
