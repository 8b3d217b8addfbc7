#include "runtime/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/base/exact_sum_block.h"

namespace tessera {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000;
constexpr std::uint32_t kSmallestNormalBits = 0x00800000;
constexpr std::int64_t kMaxDeposits = std::int64_t{1} << 30;
constexpr std::int64_t kLowWord = 0xffffffff;

std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

// Of a block whose largest magnitude has these bits: the T with every addend below 2^T.
template <bool kSquares>
int exponent_above(std::uint32_t largest) {
  const int above = static_cast<int>(largest >> 23) - 126;
  return kSquares ? 2 * above : above;
}

// The two grids of a block hold nothing of a denormal while the lower one is coarser than twice the least normal
// addend; below this exponent they might.
template <bool kSquares>
constexpr int kLeastExponent = (kSquares ? -252 : -126) + 1 + 44 + exact_sum_block::kStep;

}  // namespace

void ExactSum::add(const float* values, std::size_t n) {
  add_all<false>(values, n);
}

void ExactSum::add_squares(const float* values, std::size_t n) {
  add_all<true>(values, n);
}

template <bool kSquares>
void ExactSum::add_all(const float* values, std::size_t n) {
  addends_ += static_cast<std::int64_t>(n);
  constexpr std::size_t kLength = exact_sum_block::kLength;
  for (; n >= kLength; n -= kLength, values += kLength) add_block<kSquares>(values);
  if (n == 0) return;
  std::array<float, kLength> tail{};
  std::copy(values, values + n, tail.begin());
  add_block<kSquares>(tail.data());
}

template <bool kSquares>
void ExactSum::add_block(const float* values) {
  const std::uint32_t largest = exact_sum_block::largest_bits(values);
  if (largest < kSmallestNormalBits) return;  // zeros and denormals
  if (largest < kInfinityBits && exponent_above<kSquares>(largest) >= kLeastExponent<kSquares>) {
    const exact_sum_block::Split split = exact_sum_block::split<kSquares>(values, exponent_above<kSquares>(largest));
    if (!split.rest) {
      deposit(split.upper);
      deposit(split.lower);
      return;
    }
  }
  add_uneven_block<kSquares>(values);
}

// Denormals, NaN and infinities are taken out one by one; what is left needs as many grids as it needs.
template <bool kSquares>
void ExactSum::add_uneven_block(const float* values) {
  std::array<double, exact_sum_block::kLength> addends;
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const std::uint32_t bits = magnitude_bits(values[i]);
    const double wide = values[i];
    const bool counts = bits >= kSmallestNormalBits && bits < kInfinityBits;
    addends[i] = !counts ? 0.0 : kSquares ? wide * wide : wide;
    if (counts) largest = std::max(largest, bits);
    if (bits >= kInfinityBits) ++non_finite_;
  }
  bool rest = largest != 0;
  for (int exponent = exponent_above<kSquares>(largest); rest; exponent -= 2 * exact_sum_block::kStep) {
    const exact_sum_block::Split split = exact_sum_block::split_off(addends.data(), exponent);
    deposit(split.upper);
    deposit(split.lower);
    rest = split.rest;
  }
}

// exact = mantissa * 2^exponent: the mantissa's 53 bits, shifted to a limb boundary, cover at most three limbs.
void ExactSum::deposit(double exact) {
  const auto bits = std::bit_cast<std::uint64_t>(exact);
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  if (biased == 0) return;
  std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  int position = biased - 1075 - kLowestExponent;
  if (position < 0) {  // these bits are zeros, by the condition on `exact`
    mantissa >>= -position;
    position = 0;
  }
  const auto limb = static_cast<std::size_t>(position / 32);
  const auto shifted = static_cast<unsigned __int128>(mantissa) << (position % 32);
  const bool negative = (bits >> 63) != 0;
  for (std::size_t word = 0; word < 3; ++word) {
    const auto part = static_cast<std::int64_t>(static_cast<std::uint64_t>(shifted >> (32 * word)) & kLowWord);
    if (part != 0) limbs_[limb + word] += negative ? -part : part;
  }
  if (++since_normalise_ >= kMaxDeposits) normalise();
}

// Afterwards limbs are in [0, 2^32) but for the highest, which carries the sign.
void ExactSum::normalise() {
  std::int64_t carry = 0;
  for (std::size_t k = 0; k + 1 < limbs_.size(); ++k) {
    const std::int64_t sum = limbs_[k] + carry;
    limbs_[k] = sum & kLowWord;
    carry = sum >> 32;
  }
  limbs_.back() += carry;
  since_normalise_ = 0;
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum theirs = other;
  theirs.normalise();
  normalise();
  for (std::size_t k = 0; k < limbs_.size(); ++k) limbs_[k] += theirs.limbs_[k];
  non_finite_ += theirs.non_finite_;
  addends_ += theirs.addends_;
  normalise();
}

std::array<std::int64_t, ExactSum::kNumWords> ExactSum::export_words() const {
  ExactSum copy = *this;
  copy.normalise();
  std::array<std::int64_t, kNumWords> words{};
  std::copy(copy.limbs_.begin(), copy.limbs_.end(), words.begin());
  words[kNumLimbs] = non_finite_;
  words[kNumLimbs + 1] = addends_;
  return words;
}

ExactSum ExactSum::from_words(std::span<const std::int64_t> words) {
  require(words.size() == kNumWords, "an exact sum has a fixed number of words");
  ExactSum sum;
  std::copy(words.begin(), words.begin() + kNumLimbs, sum.limbs_.begin());
  sum.non_finite_ = words[kNumLimbs];
  sum.addends_ = words[kNumLimbs + 1];
  sum.normalise();
  return sum;
}

double ExactSum::value() const {
  if (non_finite_ != 0) return std::numeric_limits<double>::quiet_NaN();
  ExactSum magnitude = *this;
  magnitude.normalise();
  const bool negative = magnitude.limbs_.back() < 0;
  if (negative) {
    for (std::int64_t& limb : magnitude.limbs_) limb = -limb;
    magnitude.normalise();
  }
  // The highest limb may exceed 32 bits: as one more digit, all digits are below 2^32.
  std::array<std::uint64_t, kNumLimbs + 1> digits{};
  for (std::size_t k = 0; k < kNumLimbs; ++k) digits[k] = static_cast<std::uint64_t>(magnitude.limbs_[k]);
  digits[kNumLimbs] = digits[kNumLimbs - 1] >> 32;
  digits[kNumLimbs - 1] &= kLowWord;

  std::size_t top = digits.size();
  while (top > 0 && digits[top - 1] == 0) --top;
  if (top == 0) return 0.0;
  --top;
  // The leading three digits hold at least 65 bits from the first one on; what follows them only breaks ties.
  unsigned __int128 window = 0;
  for (std::size_t i = 0; i < 3; ++i) window = window << 32 | (top >= i ? digits[top - i] : 0);
  bool below = false;
  for (std::size_t k = 0; k + 2 < top; ++k) below = below || digits[k] != 0;

  const int width = 64 + std::bit_width(digits[top]);  // of the window, 65 to 96
  const int dropped = width - 53;
  auto mantissa = static_cast<std::uint64_t>(window >> dropped);
  const unsigned __int128 half = static_cast<unsigned __int128>(1) << (dropped - 1);
  const unsigned __int128 tail = window & (2 * half - 1);
  const bool up = tail > half || (tail == half && (below || (mantissa & 1) != 0));
  // Rounding up the largest mantissa carries into the exponent field, as it should.
  const int exponent = kLowestExponent + 32 * (static_cast<int>(top) - 2) + dropped + 52;
  const std::uint64_t bits = (static_cast<std::uint64_t>(exponent + 1022) << 52) + mantissa + (up ? 1 : 0);
  const double value = std::bit_cast<double>(bits);
  return negative ? -value : value;
}

}  // namespace tessera
