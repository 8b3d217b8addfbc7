#include "runtime/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/float_environment.h"
#include "tests/base/float_mode.h"

namespace tessera {
namespace {

constexpr float kHuge = 0x1.8p127F;
constexpr float kSmallestNormal = 0x1p-126F;

ExactSum sum_of(const std::vector<float>& values) {
  ExactSum sum;
  sum.add(values.data(), values.size());
  return sum;
}

ExactSum squares_of(const std::vector<float>& values) {
  ExactSum sum;
  sum.add_squares(values.data(), values.size());
  return sum;
}

// Finite floats of all signs, whose exponents are uniform in [lowest, highest].
std::vector<float> spread(std::size_t n, int lowest, int highest, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    const std::uint32_t exponent =
        static_cast<std::uint32_t>(lowest + 127) + random() % static_cast<std::uint32_t>(highest - lowest + 1);
    value = std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0x807fffffU) | exponent << 23);
  }
  return values;
}

TEST(ExactSum, OfNothingIsZero) {
  EXPECT_EQ(ExactSum().value(), 0.0);
  EXPECT_EQ(sum_of({0.0F, -0.0F}).value(), 0.0);
  EXPECT_EQ(sum_of({0.0F, -0.0F}).num_addends(), 2);
}

TEST(ExactSum, OfTheFirstSquaresIsTheirClosedForm) {
  for (const std::int64_t n : {1, 7, 511, 512, 513, 4096, 100000}) {
    std::vector<float> values;
    for (std::int64_t i = 1; i <= n; ++i) values.push_back(static_cast<float>(i));
    EXPECT_EQ(squares_of(values).value(), static_cast<double>(n * (n + 1) * (2 * n + 1) / 6));
    EXPECT_EQ(sum_of(values).value(), static_cast<double>(n * (n + 1) / 2));
    EXPECT_EQ(sum_of(values).num_addends(), n);
  }
}

// Values are multiples of 2^-30 below 2^30: their sums are integers of at most 77 bits in units of 2^-30.
TEST(ExactSum, AgreesWithWideIntegersAndIsRoundedOnce) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> values = spread(1 + seed * 7, -7, 29, seed);
    __int128 exact = 0;
    for (const float value : values) exact += static_cast<__int128>(std::ldexp(static_cast<double>(value), 30));
    EXPECT_EQ(sum_of(values).value(), std::ldexp(static_cast<double>(exact), -30)) << seed;
  }
}

// Squares of floats that are multiples of 2^-15 below 2^30 are multiples of 2^-30 below 2^60.
TEST(ExactSum, OfSquaresAgreesWithWideIntegers) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> values = spread(1 + seed * 7, 8, 29, seed);
    __int128 exact = 0;
    for (const float value : values) {
      const auto whole = static_cast<__int128>(std::ldexp(static_cast<double>(value), 15));
      exact += whole * whole;
    }
    EXPECT_EQ(squares_of(values).value(), std::ldexp(static_cast<double>(exact), -30)) << seed;
  }
}

TEST(ExactSum, KeepsTheSmallestNumberBesideTheLargest) {
  EXPECT_EQ(sum_of({kHuge, kSmallestNormal, -kHuge}).value(), 0x1p-126);
  EXPECT_EQ(sum_of({-kHuge, -kSmallestNormal, kHuge}).value(), -0x1p-126);
  ExactSum squares = squares_of({kHuge, kSmallestNormal});
  EXPECT_EQ(squares.value(), 0x1.2p255);
  // Taken away again by words, as a difference of two sums: what stays is (2^-126)^2.
  auto words = squares.export_words();
  const auto large = squares_of({kHuge}).export_words();
  for (std::size_t k = 0; k < words.size(); ++k) words[k] -= large[k];
  EXPECT_EQ(ExactSum::from_words(words).value(), 0x1p-252);
}

TEST(ExactSum, TiesGoToEvenAndTheLastBitBreaksThem) {
  EXPECT_EQ(sum_of({0x1p53F, 1.0F}).value(), 0x1p53);
  EXPECT_EQ(sum_of({0x1p53F, 1.0F, 2.0F}).value(), 0x1p53 + 4);
  EXPECT_EQ(sum_of({0x1p53F, 1.0F, kSmallestNormal}).value(), 0x1p53 + 2);
  EXPECT_EQ(sum_of({0x1p53F, 1.0F, -kSmallestNormal}).value(), 0x1p53);
  EXPECT_EQ(sum_of({-0x1p53F, -1.0F}).value(), -0x1p53);
  EXPECT_EQ(sum_of({-0x1p53F, -1.0F, -kSmallestNormal}).value(), -(0x1p53 + 2));
  // All ones round up into the next power of two.
  EXPECT_EQ(sum_of({0x1p54F, -1.0F, 0x1p-30F}).value(), 0x1p54);
}

TEST(ExactSum, DoesNotDependOnOrderGroupingOrMerging) {
  for (const auto& [lowest, highest] : {std::pair{-126, 127}, {-20, 20}, {-126, -100}, {-3, 0}}) {
    std::vector<float> values = spread(5000, lowest, highest, 11);
    const auto whole = sum_of(values).export_words();
    const auto whole_squares = squares_of(values).export_words();
    std::mt19937 random(5);
    for (int trial = 0; trial < 10; ++trial) {
      std::shuffle(values.begin(), values.end(), random);
      EXPECT_EQ(sum_of(values).export_words(), whole);
      EXPECT_EQ(squares_of(values).export_words(), whole_squares);
      ExactSum merged;
      ExactSum merged_squares;
      for (std::size_t begin = 0; begin < values.size();) {
        const std::size_t n = std::min<std::size_t>(values.size() - begin, random() % 900);
        const std::vector<float> part(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                      values.begin() + static_cast<std::ptrdiff_t>(begin + n));
        merged.merge(sum_of(part));
        merged_squares.merge(squares_of(part));
        begin += n;
      }
      EXPECT_EQ(merged.export_words(), whole);
      EXPECT_EQ(merged_squares.export_words(), whole_squares);
    }
  }
}

TEST(ExactSum, OneByOneEqualsTheFastBlocks) {
  for (const auto& [lowest, highest] : {std::pair{-126, 127}, {-2, 2}, {-126, -110}}) {
    const std::vector<float> values = spread(2048, lowest, highest, 3);
    ExactSum sum;
    ExactSum squares;
    for (const float value : values) {
      sum.add(&value, 1);
      squares.add_squares(&value, 1);
    }
    EXPECT_EQ(sum.export_words(), sum_of(values).export_words());
    EXPECT_EQ(squares.export_words(), squares_of(values).export_words());
  }
}

TEST(ExactSum, WordsOfAMillionRanksAddUpWithoutOverflow) {
  constexpr std::int64_t kRanks = std::int64_t{1} << 20;
  const ExactSum part = sum_of({kHuge, -1.25F, 0x1p-100F, -kHuge, -kHuge});
  auto words = part.export_words();
  for (auto& word : words) ASSERT_FALSE(__builtin_mul_overflow(word, kRanks, &word));
  const ExactSum all = ExactSum::from_words(words);
  EXPECT_EQ(all.value(), part.value() * static_cast<double>(kRanks));
  EXPECT_EQ(all.num_addends(), 5 * kRanks);
}

TEST(ExactSum, NegativeSumsSurviveTheirWords) {
  const ExactSum sum = sum_of({-3.5F, 1.0F, -kSmallestNormal});
  EXPECT_EQ(ExactSum::from_words(sum.export_words()).value(), sum.value());
  EXPECT_LT(sum.value(), -2.4);
}

TEST(ExactSum, NonFiniteAddendsAreCountedAndMakeTheValueNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(1000, 1.0F);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[700] = infinity;
  values[999] = -infinity;
  for (const ExactSum& sum : {sum_of(values), squares_of(values)}) {
    EXPECT_EQ(sum.num_non_finite(), 3);
    EXPECT_EQ(sum.num_addends(), 1000);
    EXPECT_TRUE(std::isnan(sum.value()));
  }
  // The finite ones are all there: taking the count away shows them.
  auto words = sum_of(values).export_words();
  words[ExactSum::kNumLimbs] = 0;
  EXPECT_EQ(ExactSum::from_words(words).value(), 997.0);
}

TEST(ExactSum, DenormalsAreZeroWhateverTheThreadsModeIs) {
  const float denormal = std::bit_cast<float>(0x007fffffU);
  std::vector<float> only(600, denormal);
  std::vector<float> beside_small(600, denormal);
  beside_small[5] = kSmallestNormal;
  beside_small[590] = 0x1p-125F;
  std::vector<float> beside_large = beside_small;
  beside_large[100] = 3.0F;
  const auto check = [&] {
    EXPECT_EQ(sum_of(only).value(), 0.0);
    EXPECT_EQ(squares_of(only).value(), 0.0);
    EXPECT_EQ(sum_of(beside_small).value(), 0x1.8p-125);
    EXPECT_EQ(squares_of(beside_small).value(), 0x1.4p-250);
    auto words = sum_of(beside_large).export_words();
    const auto three = sum_of({3.0F}).export_words();
    for (std::size_t k = 0; k < ExactSum::kNumLimbs; ++k) words[k] -= three[k];
    EXPECT_EQ(ExactSum::from_words(words).value(), 0x1.8p-125);
  };
  {
    const test::FloatMode gradual(test::FloatMode::kGradual);
    check();
  }
  {
    const test::FloatMode flushed(test::FloatMode::kFlushed);
    check();
  }
}

TEST(ExactSum, WordsOfAnotherLengthAreRefused) {
  const std::vector<std::int64_t> words(ExactSum::kNumWords - 1);
  EXPECT_THROW(ExactSum::from_words(words), InternalError);
}

}  // namespace
}  // namespace tessera
