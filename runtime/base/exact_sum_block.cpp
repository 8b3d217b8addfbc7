#include "runtime/base/exact_sum_block.h"

#include <bit>
#include <cstring>

#include "runtime/base/avx2.h"

namespace tessera::exact_sum_block {
namespace {

// Vectors of four lanes in the compiler's own notation: two SSE2 registers, or one AVX2 register where the clone below
// is taken. They do the same exact operations, so the choice is invisible in the sum.
using Floats = float __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(32)));
using Words = std::uint64_t __attribute__((vector_size(32)));

// Why nothing is lost. Let every addend q be at most 2^T in magnitude, T = exponent.
// Upper grid, g = T - 44: with C = 1.5 * 2^(52 + g), q + C stays in [2^(52+g), 2^(53+g)), where doubles are the
// multiples of 2^g, because |q| <= 2^T < 2^(51+g). So t = (q + C) - C is q rounded to the grid, and both it and q - t
// are exact: t is a multiple of 2^g of at most 2^T; q - t is at most 2^(g-1) and a multiple of q's own last place. Sum
// of the t: multiples of 2^g, after 512 of them at most 2^(T+9) = 2^(g+53): every partial sum, in any order, is a
// multiple of 2^g of at most 53 bits, hence a double.
// Lower grid, h = g - 45: the remainders are at most 2^(g-1) = 2^(h+44), and the same holds with T' = h + 44.
// What is left is at most 2^(h-1) = 2^(T-90): the next two grids begin there.
struct Grids {
  double upper_rounder;
  double lower_rounder;

  explicit Grids(int exponent) : upper_rounder(rounder(exponent - 44)), lower_rounder(rounder(exponent - 44 - kStep)) {}

  static double rounder(int grid) {
    return 1.5 * std::bit_cast<double>(static_cast<std::uint64_t>(52 + grid + 1023) << 52);
  }
};

struct Lanes {
  Doubles upper = {};
  Doubles lower = {};
  Words rest = {};
};

// Leaves in q what is below both grids.
[[gnu::always_inline]] inline void split_four(Doubles& q, const Doubles& upper_rounder, const Doubles& lower_rounder,
                                              Lanes& lanes) {
  const Doubles t = (q + upper_rounder) - upper_rounder;
  lanes.upper += t;
  q -= t;
  const Doubles u = (q + lower_rounder) - lower_rounder;
  lanes.lower += u;
  q -= u;
  Words bits;
  std::memcpy(&bits, &q, sizeof bits);
  lanes.rest |= bits;
}

[[gnu::always_inline]] inline Split join(const Lanes& a, const Lanes& b) {
  const Doubles upper = a.upper + b.upper;
  const Doubles lower = a.lower + b.lower;
  const Words rest = a.rest | b.rest;
  const std::uint64_t bits = rest[0] | rest[1] | rest[2] | rest[3];
  const bool any = (bits << 1) != 0;  // a remainder of -0 is none
  return {(upper[0] + upper[1]) + (upper[2] + upper[3]), (lower[0] + lower[1]) + (lower[2] + lower[3]), any};
}

template <bool kSquares>
[[gnu::always_inline]] inline Split split_lanes(const float* values, int exponent) {
  const Grids grids(exponent);
  const Doubles upper_rounder = grids.upper_rounder - Doubles{};
  const Doubles lower_rounder = grids.lower_rounder - Doubles{};
  Lanes even;
  Lanes odd;
  const auto take = [&](const float* four, Lanes& lanes) __attribute__((always_inline)) {
    Floats narrow;
    std::memcpy(&narrow, four, sizeof narrow);
    Doubles q = __builtin_convertvector(narrow, Doubles);
    if constexpr (kSquares) q = q * q;
    split_four(q, upper_rounder, lower_rounder, lanes);
  };
  for (std::size_t i = 0; i < kLength; i += 8) {
    take(values + i, even);
    take(values + i + 4, odd);
  }
  return join(even, odd);
}

[[gnu::always_inline]] inline std::uint32_t largest_lanes(const float* values) {
  std::uint32_t largest[8] = {};
  for (std::size_t i = 0; i < kLength; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, values + i + lane, sizeof bits);
      bits &= 0x7fffffffU;
      largest[lane] = bits > largest[lane] ? bits : largest[lane];
    }
  }
  for (std::size_t lane = 1; lane < 8; ++lane) largest[0] = largest[lane] > largest[0] ? largest[lane] : largest[0];
  return largest[0];
}

#if defined(__x86_64__)
template <bool kSquares>
[[gnu::target("avx2")]] Split split_avx2(const float* values, int exponent) {
  return split_lanes<kSquares>(values, exponent);
}

[[gnu::target("avx2")]] std::uint32_t largest_avx2(const float* values) {
  return largest_lanes(values);
}
#endif

}  // namespace

std::uint32_t largest_bits(const float* values) {
#if defined(__x86_64__)
  if (has_avx2()) return largest_avx2(values);
#endif
  return largest_lanes(values);
}

template <bool kSquares>
Split split(const float* values, int exponent) {
#if defined(__x86_64__)
  if (has_avx2()) return split_avx2<kSquares>(values, exponent);
#endif
  return split_lanes<kSquares>(values, exponent);
}

Split split_off(double* values, int exponent) {
  const Grids grids(exponent);
  const Doubles upper_rounder = grids.upper_rounder - Doubles{};
  const Doubles lower_rounder = grids.lower_rounder - Doubles{};
  Lanes lanes;
  for (std::size_t i = 0; i < kLength; i += 4) {
    Doubles q;
    std::memcpy(&q, values + i, sizeof q);
    split_four(q, upper_rounder, lower_rounder, lanes);
    std::memcpy(values + i, &q, sizeof q);
  }
  return join(lanes, Lanes());
}

template Split split<false>(const float* values, int exponent);
template Split split<true>(const float* values, int exponent);

}  // namespace tessera::exact_sum_block
