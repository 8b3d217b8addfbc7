// The inner loop of ExactSum: splits a block of numbers on absolute grids and sums each grid without error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::exact_sum_block {

inline constexpr std::size_t kLength = 512;

// Of a block: bits of the largest magnitude (for NaN and infinities at least 0x7f800000).
std::uint32_t largest_bits(const float* values);

// What two grids hold of the values (or of their squares); rest is true when something lies below the lower grid.
struct Split {
  double upper = 0;
  double lower = 0;
  bool rest = false;
};

// The distance between grids, in powers of two: exponent - 44 is the upper one, kStep below it the lower one.
inline constexpr int kStep = 45;

// exponent: no addend is above 2^exponent in magnitude.
template <bool kSquares>
Split split(const float* values, int exponent);

// The same for numbers that are doubles already; leaves in `values` what lies below the lower grid, so that the next
// call, with an exponent lower by 2 * kStep, goes on from there.
Split split_off(double* values, int exponent);

}  // namespace tessera::exact_sum_block
