// Exact sums of floating-point numbers in fixed-point integer limbs: the result depends on the set of addends alone,
// never on their order, grouping, threads or ranks. Used for the gradient norm (sum of squares) and for losses (sum of
// values).
//
// Representation: limb k holds a signed multiple of 2^(32k + kLowestExponent); limbs are summed as plain integers, so
// two partial sums are merged by adding limbs (all-reduce them as i64 SUM: 2^30 parts fit). A deposit touches a limb
// with less than 2^32 in magnitude, so 2^30 deposits fit between calls of normalise(); add() and add_squares()
// normalise by themselves. fp32 denormals count as zero (the float environment flushes them everywhere, see
// float_environment.h), also on a thread whose mode is not set.
//
// Speed: blocks of 512 values are split, as doubles, on one or two absolute grids of powers of two, and each grid is
// summed exactly (the argument stands in the .cpp); a block of very unequal values takes further grids. How a block is
// split changes the time, never the sum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

class ExactSum {
 public:
  static constexpr int kNumLimbs = 20;             // 640 bits
  static constexpr int kLowestExponent = -320;     // squares of fp32 reach 2^-252 (normal) and 2^256
  static constexpr int kNumWords = kNumLimbs + 2;  // limbs, then the counts of NaN/inf addends and of addends

  // Adds n values. Any fp32; NaN and infinities are only counted.
  void add(const float* values, std::size_t n);
  // Adds value^2 for n values.
  void add_squares(const float* values, std::size_t n);
  void merge(const ExactSum& other);

  // The words to all-reduce as i64 SUM, and back. export_words() normalises first.
  std::array<std::int64_t, kNumWords> export_words() const;
  static ExactSum from_words(std::span<const std::int64_t> words);

  // The sum, rounded once to double (correctly, ties to even); NaN if a non-finite addend was seen.
  double value() const;
  std::int64_t num_non_finite() const { return non_finite_; }
  std::int64_t num_addends() const { return addends_; }

 private:
  template <bool kSquares>
  void add_all(const float* values, std::size_t n);
  template <bool kSquares>
  void add_block(const float* values);  // of exact_sum_block::kLength values
  template <bool kSquares>
  void add_uneven_block(const float* values);
  void normalise();
  void deposit(double exact);  // any finite double that is a multiple of 2^kLowestExponent, below 2^288 in magnitude

  std::array<std::int64_t, kNumLimbs> limbs_{};
  std::int64_t non_finite_ = 0;
  std::int64_t addends_ = 0;
  std::int64_t since_normalise_ = 0;
};

}  // namespace tessera
