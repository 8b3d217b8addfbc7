// One row of softmax cross-entropy: the largest logit, the sum of exponentials, then the gradient in place.
#pragma once

#include "runtime/base/math.h"
#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/cpu/lanes_math.h"

namespace tessera::ops::cpu::TESSERA_ISA {

inline float cross_entropy_row(const CrossEntropyRow& a) {
  constexpr float kMinusInfinity = -__builtin_huge_valf();
  float* z = a.logits;
  Vec largest = broadcast(kMinusInfinity);
  for_blocks(a.vocabulary, [&](std::int64_t i, std::int64_t count) {
    largest = larger(largest, load_block(z + i, count, kMinusInfinity));
  });
  const float max = max_lanes(largest);
  const float target_logit = z[a.target];

  // Where a gradient is wanted, the exponentials stay in the logits' place: nothing is computed twice.
  const bool smooth = a.label_smoothing != 0.0F;
  Vec sum = broadcast(0.0F);
  Vec sum_logits = broadcast(0.0F);
  for_blocks(a.vocabulary, [&](std::int64_t i, std::int64_t count) {
    const Vec x = load_block(z + i, count, kMinusInfinity);
    const Vec e = exp_nonpositive(x - max);
    sum = sum + e;
    if (smooth) sum_logits = sum_logits + load_block(z + i, count);
    if (a.with_gradient) store_block(z + i, count, e);
  });
  const float total = sum_lanes(sum);
  const double vocabulary = static_cast<double>(a.vocabulary);
  const double log_total = math::log(static_cast<double>(total));
  const double smoothing = static_cast<double>(a.label_smoothing);
  double expected_logit = (1.0 - smoothing) * static_cast<double>(target_logit);
  if (smooth) expected_logit += smoothing * (static_cast<double>(sum_lanes(sum_logits)) / vocabulary);
  const double z_loss = static_cast<double>(a.z_loss);
  const double lse = static_cast<double>(max) + log_total;
  // The difference first: a common offset of all logits, however large, leaves no trace.
  const double loss = (log_total + (static_cast<double>(max) - expected_logit)) + z_loss * (lse * lse);

  if (a.with_gradient) {
    const double outer = static_cast<double>(a.gradient_scale);
    const float factor = static_cast<float>(outer * (1.0 + 2.0 * z_loss * lse) / static_cast<double>(total));
    const float uniform = static_cast<float>(outer * smoothing / vocabulary);
    const float at_target = static_cast<float>(outer * (1.0 - smoothing));
    for_blocks(a.vocabulary, [&](std::int64_t i, std::int64_t count) {
      store_block(z + i, count, load_block(z + i, count) * factor - uniform);
    });
    z[a.target] = z[a.target] - at_target;
  }
  return static_cast<float>(loss);
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
