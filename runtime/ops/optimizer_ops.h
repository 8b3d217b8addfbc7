// Elementwise optimizer updates and reductions over flat ranges. All fp32, any length, 64-byte aligned starts not
// required.
#pragma once

#include <span>

#include "runtime/base/exact_sum.h"
#include "runtime/device/stream.h"

namespace tessera::ops {

// AdamW (Loshchilov, Hutter 2019), decoupled decay; scalars are computed in double by the caller and rounded once:
//   g = grad * gradient_scale;  m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g²
//   θ = θ - (θ * decay) - (m * step_size) / (√v * denominator_scale + eps)
// step_size = η / (1 - beta1^t), denominator_scale = 1 / √(1 - beta2^t), decay = η λ.
struct AdamW {
  std::span<float> parameter, m, v;
  std::span<const float> gradient;
  float gradient_scale = 1, beta1 = 0.9F, one_minus_beta1 = 0.1F, beta2 = 0.999F, one_minus_beta2 = 0.001F,
        step_size = 0, denominator_scale = 1, eps = 1e-8F, decay = 0;
};
void adamw(StreamView stream, const AdamW& args);

// destination[i] = destination[i] + source[i]: the step that joins two nodes of the lane tree.
void add_in_place(StreamView stream, std::span<float> destination, std::span<const float> source);

// Exact sums over a range, cut in chunks over the pool and merged as integers.
ExactSum exact_sum(StreamView stream, std::span<const float> values);
ExactSum exact_sum_of_squares(StreamView stream, std::span<const float> values);

// destination[i] = tree over k of sources[k][i], neighbours paired level by level, an odd last one passing up:
// ((s0+s1)+(s2+s3))+s4 … The one definition of the order in which ranks' partial sums are added. Runs on the calling
// thread (communication streams call it); destination may alias any source element for element.
void tree_sum(std::span<float> destination, std::span<const float* const> sources);
void tree_sum(std::span<std::int64_t> destination, std::span<const std::int64_t* const> sources);

}  // namespace tessera::ops
