// Elementary functions on lanes. Polynomials were fitted by us (Lawson's weighted least squares on Chebyshev nodes);
// the tests hold them against double references.
#pragma once

#include "runtime/ops/cpu/lanes.h"

namespace tessera::ops::cpu::TESSERA_ISA {

// e^x for x <= 0, within 2 ulp; exactly 0 below -87.33, where the result would be denormal; NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + r + r^2 P(r).
TESSERA_INLINE Vec exp_nonpositive(Vec x) {
  constexpr float kLowest = -87.33F;
  constexpr float kLog2E = 1.44269504F;
  constexpr float kRounder = 12582912.0F;   // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693359375F;  // 10 bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  const Vec bounded = at_least(x, kLowest);
  const Vec shifted = bounded * kLog2E + kRounder;
  const Vec n = shifted - kRounder;
  const Vec r = (bounded - n * kLn2High) - n * kLn2Low;
  Vec p = broadcast(0.0013814322F);
  p = p * r + 0.008368852F;
  p = p * r + 0.0416684F;
  p = p * r + 0.1666652F;
  p = p * r + 0.49999994F;
  const Vec mantissa = 1.0F + (r + (r * r) * p);
  // The low bits of `shifted` are n: moved to the exponent field they multiply by 2^n.
  const Vec scaled = for_parts<Vec>([&](int i) {
    const NativeBits integer = (NativeBits)shifted.part[i] - 0x4B400000U;
    const NativeBits exponent = (integer + 127U) << 23;
    return mantissa.part[i] * (Native)exponent;
  });
  return select(less(x, broadcast(kLowest)), broadcast(0.0F), scaled);
}

// 1 / (1 + e^-x) and its derivative. Both halves keep their relative accuracy.
struct Sigmoid {
  Vec value;
  Vec derivative;
};
TESSERA_INLINE Sigmoid sigmoid(Vec x) {
  const Vec e = exp_nonpositive(-absolute(x));
  const Vec inverse = 1.0F / (1.0F + e);
  const Vec small = e * inverse;  // the sigmoid of -|x|
  return {select(less(x, broadcast(0.0F)), small, inverse), small * inverse};
}

// The normal distribution: density(x) = e^(-x^2/2) / sqrt(2 pi), cumulative(x) = (1 + erf(x / sqrt 2)) / 2. The upper
// tail Q(a) = e^(-a^2/2) S(t), t = 1 / (1 + 0.33 a), keeps its relative accuracy.
struct Normal {
  Vec cumulative;
  Vec density;
};
TESSERA_INLINE Normal normal_distribution(Vec x) {
  const Vec a = at_most(absolute(x), 14.0F);  // Q(14) is 0 in fp32
  const Vec e = exp_nonpositive((a * a) * -0.5F);
  const Vec t = 1.0F / (1.0F + a * 0.33F);
  Vec s = broadcast(-0.02610704116523266F);
  s = s * t + 0.14980252087116241F;
  s = s * t + -0.3250689208507538F;
  s = s * t + 0.29511529207229614F;
  s = s * t + -0.10954879969358444F;
  s = s * t + 0.14730092883110046F;
  s = s * t + 0.10326112061738968F;
  s = s * t + 0.1337691992521286F;
  s = s * t + 0.13146893680095673F;
  s = s * t + 6.78290416544769e-06F;
  const Vec tail = e * s;
  return {select(less(x, broadcast(0.0F)), tail, 1.0F - tail), e * 0.3989422804014327F};
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
