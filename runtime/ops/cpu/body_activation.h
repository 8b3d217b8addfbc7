// Activations, forward and backward side by side. f(x) and f'(x) of each kind; gated kinds multiply by `up`.
#pragma once

#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/cpu/lanes_math.h"

namespace tessera::ops::cpu::TESSERA_ISA {

struct ValueAndSlope {
  Vec value;
  Vec slope;
};

struct Gelu {
  static TESSERA_INLINE ValueAndSlope at(Vec x) {
    const Normal normal = normal_distribution(x);
    const Vec bounded = at_most(at_least(x, -14.0F), 14.0F);  // infinity * 0 would not be a number
    return {x * normal.cumulative, normal.cumulative + bounded * normal.density};
  }
};

// x/2 (1 + tanh u) = x sigmoid(2u).
struct GeluTanh {
  static TESSERA_INLINE ValueAndSlope at(Vec x) {
    constexpr float kTwoRootTwoOverPi = 1.5957691216057308F;
    constexpr float kCubic = 0.044715F;
    const Vec bounded = at_most(at_least(x, -30.0F), 30.0F);  // beyond it the sigmoid is 0 or 1; its cube stays finite
    const Vec square = bounded * bounded;
    const Sigmoid s = sigmoid((bounded * kTwoRootTwoOverPi) * (1.0F + square * kCubic));
    const Vec inner_slope = kTwoRootTwoOverPi * (1.0F + square * (3.0F * kCubic));
    return {x * s.value, s.value + (bounded * s.derivative) * inner_slope};
  }
};

struct Relu {
  static TESSERA_INLINE ValueAndSlope at(Vec x) {
    const IntVec negative = less(x, broadcast(0.0F));
    const IntVec positive = less(broadcast(0.0F), x);
    return {select(negative, broadcast(0.0F), x), select(positive, broadcast(1.0F), broadcast(0.0F))};
  }
};

struct Silu {
  static TESSERA_INLINE ValueAndSlope at(Vec x) {
    const Sigmoid s = sigmoid(x);
    const Vec bounded = at_most(at_least(x, -100.0F), 100.0F);
    return {x * s.value, s.value + bounded * s.derivative};
  }
};

template <typename F, bool kGated>
void activation_forward(const float* x, const float* up, float* y, std::int64_t n) {
  for_blocks(n, [&](std::int64_t i, std::int64_t count) {
    const Vec value = F::at(load_block(x + i, count)).value;
    if constexpr (kGated) {
      store_block(y + i, count, value * load_block(up + i, count));
    } else {
      store_block(y + i, count, value);
    }
  });
}

template <typename F, bool kGated>
void activation_backward(const float* dy, const float* x, const float* up, float* dx, float* dup, std::int64_t n) {
  for_blocks(n, [&](std::int64_t i, std::int64_t count) {
    const Vec gradient = load_block(dy + i, count);
    const ValueAndSlope f = F::at(load_block(x + i, count));
    if constexpr (kGated) {
      const Vec gate_gradient = (gradient * load_block(up + i, count)) * f.slope;
      store_block(dup + i, count, gradient * f.value);
      store_block(dx + i, count, gate_gradient);
    } else {
      store_block(dx + i, count, gradient * f.slope);
    }
  });
}

inline void add(const float* a, const float* b, float* y, std::int64_t n) {
  for_blocks(n, [&](std::int64_t i, std::int64_t count) {
    store_block(y + i, count, load_block(a + i, count) + load_block(b + i, count));
  });
}

inline void scale(const float* x, float factor, float* y, std::int64_t n) {
  for_blocks(n,
             [&](std::int64_t i, std::int64_t count) { store_block(y + i, count, load_block(x + i, count) * factor); });
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
