#include "runtime/base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "runtime/base/error.h"

namespace tessera {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known answers published with Random123: counter and key of zeros, of ones, and of the digits of pi.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, DependsOnSeedPurposeStreamAndIndexAlone) {
  const CounterRng rng(7, RandomPurpose::kInit, 3);
  const std::uint64_t at_five = rng.bits64(5);
  EXPECT_NE(rng.bits64(6), at_five);
  EXPECT_EQ(rng.bits64(5), at_five);
  EXPECT_EQ(CounterRng(7, RandomPurpose::kInit, 3).bits64(5), at_five);
  std::set<std::uint64_t> seen = {at_five};
  seen.insert(CounterRng(8, RandomPurpose::kInit, 3).bits64(5));
  seen.insert(CounterRng(7, RandomPurpose::kShuffle, 3).bits64(5));
  seen.insert(CounterRng(7, RandomPurpose::kInit, 4).bits64(5));
  seen.insert(CounterRng(7, RandomPurpose::kInit, 3 + (std::uint64_t{1} << 32)).bits64(5));
  seen.insert(rng.bits64(5 + (std::uint64_t{1} << 32)));
  EXPECT_EQ(seen.size(), 6U);
}

TEST(CounterRng, UniformNumbersFillTheUnitIntervalEvenly) {
  const CounterRng rng(1, RandomPurpose::kTest, 0);
  constexpr int kCount = 100000;
  std::vector<int> bins(10);
  double sum = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = rng.uniform(i);
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    ++bins[static_cast<std::size_t>(x * 10)];
    sum += x;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  for (const int count : bins) EXPECT_NEAR(count, kCount / 10, 5 * std::sqrt(kCount * 0.1 * 0.9));
}

TEST(CounterRng, NormalNumbersHaveTheMomentsOfTheStandardNormal) {
  const CounterRng rng(2, RandomPurpose::kInit, 9);
  constexpr int kCount = 200000;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = rng.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    if (std::abs(x) > 2) ++beyond_two;
  }
  const double spread = 5 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(sum / kCount, 0.0, spread);
  EXPECT_NEAR(squares / kCount, 1.0, spread * std::sqrt(2.0));
  EXPECT_NEAR(fourth / kCount, 3.0, spread * std::sqrt(96.0));
  EXPECT_NEAR(static_cast<double>(beyond_two) / kCount, 0.0455003, spread * 0.21);  // 2 (1 - Phi(2))
}

TEST(CounterRng, IntegersStayBelowTheirBoundAndReachEveryValue) {
  const CounterRng rng(3, RandomPurpose::kShuffle, 1);
  for (const std::uint64_t bound : {1ULL, 2ULL, 7ULL, 1000ULL}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 20 * bound; ++i) {
      const std::uint64_t value = rng.below(i, bound);
      ASSERT_LT(value, bound);
      seen.insert(value);
    }
    EXPECT_EQ(seen.size(), bound);
  }
  EXPECT_LT(rng.below(0, ~std::uint64_t{0}), ~std::uint64_t{0});
  EXPECT_THROW(rng.below(0, 0), InternalError);
}

}  // namespace
}  // namespace tessera
