// LayerNorm and RMSNorm over rows.
#pragma once

#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/cpu/lanes.h"

namespace tessera::ops::cpu::TESSERA_ISA {

template <bool kCentered>
TESSERA_INLINE void norm_apply_row(const float* r, const float* gain, const float* bias, float mean, float rstd,
                                   float* y, std::int64_t features) {
  for_blocks(features, [&](std::int64_t i, std::int64_t count) {
    Vec x = load_block(r + i, count);
    if constexpr (kCentered) x = x - mean;
    x = (x * rstd) * load_block(gain + i, count);
    if (bias != nullptr) x = x + load_block(bias + i, count);
    store_block(y + i, count, x);
  });
}

template <bool kCentered>
void norm_forward(const NormForwardRows& a) {
  const float width = static_cast<float>(a.features);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t offset = row * a.features;
    const float* r = a.residual + offset;
    // The residual stream, its sum (layernorm) or its sum of squares (rmsnorm).
    Vec sum = broadcast(0.0F);
    for_blocks(a.features, [&](std::int64_t i, std::int64_t count) {
      Vec x = load_block(r + i, count);
      if (a.delta != nullptr) x = x + load_block(a.delta + offset + i, count);
      if (a.residual_out != nullptr) store_block(a.residual_out + offset + i, count, x);
      sum = sum + (kCentered ? x : x * x);
    });
    if (a.residual_out != nullptr) r = a.residual_out + offset;
    float mean = 0.0F;
    float variance = sum_lanes(sum) / width;
    if constexpr (kCentered) {
      mean = variance;
      Vec squares = broadcast(0.0F);
      for_blocks(a.features, [&](std::int64_t i, std::int64_t count) {
        const Vec x = load_block(r + i, count, mean) - mean;  // absent lanes deviate by 0
        squares = squares + x * x;
      });
      variance = sum_lanes(squares) / width;
      a.mean[row] = mean;
    }
    const float rstd = 1.0F / __builtin_sqrtf(variance + a.eps);
    a.rstd[row] = rstd;
    norm_apply_row<kCentered>(r, a.gain, a.bias, mean, rstd, a.y + offset, a.features);
  }
}

template <bool kCentered>
void norm_apply(const NormApplyRows& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t offset = row * a.features;
    norm_apply_row<kCentered>(a.residual + offset, a.gain, a.bias, kCentered ? a.mean[row] : 0.0F, a.rstd[row],
                              a.y + offset, a.features);
  }
}

// With n = (r - mean) rstd and g = dy gain:  dr = rstd (g - mean(g) - n mean(g n));  rmsnorm without mean(g).
template <bool kCentered>
void norm_backward(const NormBackwardRows& a) {
  const float width = static_cast<float>(a.features);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t offset = row * a.features;
    const float* dy = a.dy + offset;
    const float* r = a.residual + offset;
    float* dx = a.dx + offset;
    const float mean = kCentered ? a.mean[row] : 0.0F;
    const float rstd = a.rstd[row];
    const auto normalised = [&](std::int64_t i, std::int64_t count) {
      Vec x = load_block(r + i, count);
      if constexpr (kCentered) x = x - mean;
      return x * rstd;
    };
    Vec sum_g = broadcast(0.0F);
    Vec sum_gn = broadcast(0.0F);
    for_blocks(a.features, [&](std::int64_t i, std::int64_t count) {
      const Vec g = load_block(dy + i, count) * load_block(a.gain + i, count);  // 0 in absent lanes
      sum_g = sum_g + g;
      sum_gn = sum_gn + g * normalised(i, count);
    });
    const float mean_g = kCentered ? sum_lanes(sum_g) / width : 0.0F;
    const float mean_gn = sum_lanes(sum_gn) / width;
    for_blocks(a.features, [&](std::int64_t i, std::int64_t count) {
      const Vec dy_block = load_block(dy + i, count);
      const Vec n = normalised(i, count);
      Vec d = dy_block * load_block(a.gain + i, count);
      if constexpr (kCentered) d = d - mean_g;
      d = (d - n * mean_gn) * rstd;
      if (a.accumulate_input) d = load_block(dx + i, count) + d;
      store_block(dx + i, count, d);
      const Vec gain_term = dy_block * n;
      if (row == 0) {
        store_block(a.dgain_part + i, count, gain_term);
        if (a.dbias_part != nullptr) store_block(a.dbias_part + i, count, dy_block);
      } else {
        store_block(a.dgain_part + i, count, load_block(a.dgain_part + i, count) + gain_term);
        if (a.dbias_part != nullptr) {
          store_block(a.dbias_part + i, count, load_block(a.dbias_part + i, count) + dy_block);
        }
      }
    });
  }
}

inline void column_sums(const float* x, std::int64_t ld, std::int64_t rows, std::int64_t columns, float* sums) {
  // Columns in groups of 64 stay in registers while the rows go by.
  constexpr std::int64_t kGroup = 4 * kLanes;
  std::int64_t c = 0;
  for (; c + kGroup <= columns; c += kGroup) {
    Vec sum[4];
    for (int k = 0; k < 4; ++k) sum[k] = load(x + c + k * kLanes);
    for (std::int64_t row = 1; row < rows; ++row) {
      for (int k = 0; k < 4; ++k) sum[k] = sum[k] + load(x + row * ld + c + k * kLanes);
    }
    for (int k = 0; k < 4; ++k) store(sums + c + k * kLanes, sum[k]);
  }
  for_blocks(columns - c, [&](std::int64_t i, std::int64_t count) {
    Vec sum = load_block(x + c + i, count);
    for (std::int64_t row = 1; row < rows; ++row) sum = sum + load_block(x + row * ld + c + i, count);
    store_block(sums + c + i, count, sum);
  });
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
