// The parts of attention between its matrix products, and rotary positions.
#pragma once

#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/cpu/lanes_math.h"

namespace tessera::ops::cpu::TESSERA_ISA {

// Keys of the block that row r may look at: those up to its own position.
TESSERA_INLINE std::int64_t visible_keys(std::int64_t first_query, std::int64_t row, std::int64_t first_key,
                                         std::int64_t keys) {
  const std::int64_t visible = first_query + row - first_key + 1;
  if (visible < 0) return 0;
  return visible < keys ? visible : keys;
}

inline void softmax_block(const SoftmaxBlock& a) {
  constexpr float kMinusInfinity = -__builtin_huge_valf();
  for (std::int64_t row = 0; row < a.rows; ++row) {
    float* s = a.scores + row * a.ld;
    const std::int64_t visible = visible_keys(a.first_query, row, a.first_key, a.keys);
    Vec largest = broadcast(kMinusInfinity);
    for_blocks(visible, [&](std::int64_t i, std::int64_t count) {
      largest = larger(largest, load_block(s + i, count, kMinusInfinity));
    });
    const float old_max = a.row_max[row];
    const float block_max = max_lanes(largest);
    const float max = old_max < block_max ? block_max : old_max;
    Vec sum = broadcast(0.0F);
    for_blocks(visible, [&](std::int64_t i, std::int64_t count) {
      const Vec e = exp_nonpositive(load_block(s + i, count, kMinusInfinity) - max);
      sum = sum + e;
      store_block(s + i, count, e);
    });
    for (std::int64_t i = visible; i < a.keys; ++i) s[i] = 0.0F;
    // The first block of a row finds a maximum of minus infinity: its factor is never used.
    alignas(64) float lanes[kLanes];
    store(lanes, exp_nonpositive(broadcast(old_max == kMinusInfinity ? 0.0F : old_max - max)));
    a.rescale[row] = lanes[0];
    a.row_sum[row] = a.row_sum[row] * lanes[0] + sum_lanes(sum);
    a.row_max[row] = max;
  }
}

inline void softmax_backward_block(const SoftmaxBackwardBlock& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    float* s = a.scores + row * a.ld;
    float* d = a.dscores + row * a.ld;
    const std::int64_t visible = visible_keys(a.first_query, row, a.first_key, a.keys);
    const float lse = a.lse[row];
    const float delta = a.delta[row];
    for_blocks(visible, [&](std::int64_t i, std::int64_t count) {
      // A score may exceed its rounded lse by an ulp.
      const Vec p = exp_nonpositive(at_most(load_block(s + i, count) - lse, 0.0F));
      store_block(d + i, count, p * (load_block(d + i, count) - delta));
      store_block(s + i, count, p);
    });
    for (std::int64_t i = visible; i < a.keys; ++i) {
      s[i] = 0.0F;
      d[i] = 0.0F;
    }
  }
}

inline float dot(const float* a, const float* b, std::int64_t n) {
  Vec sum = broadcast(0.0F);
  for_blocks(
      n, [&](std::int64_t i, std::int64_t count) { sum = sum + load_block(a + i, count) * load_block(b + i, count); });
  return sum_lanes(sum);
}

inline void rope_row(float* x, const float* cosines, const float* sines, std::int64_t half_dim, float sign) {
  for_blocks(half_dim, [&](std::int64_t i, std::int64_t count) {
    const Vec first = load_block(x + i, count);
    const Vec second = load_block(x + half_dim + i, count);
    const Vec c = load_block(cosines + i, count);
    const Vec s = load_block(sines + i, count) * sign;
    store_block(x + i, count, first * c - second * s);
    store_block(x + half_dim + i, count, second * c + first * s);
  });
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
