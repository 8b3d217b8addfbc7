#include "runtime/ops/rope_frequencies.h"

#include <gtest/gtest.h>

namespace tessera::ops {
namespace {

// theta 10000 and four pairs: 1, 1/10, 1/100 and 1/1000 radians per position.
constexpr std::int64_t kHeadDim = 8;

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12 * expected[i]) << i;
}

TEST(RopeFrequencies, FallGeometrically) {
  expect_near(rope_frequencies(kHeadDim, {}), {1, 0.1, 0.01, 0.001});
}

TEST(RopeFrequencies, LinearScalingDividesAll) {
  expect_near(rope_frequencies(kHeadDim, {.scaling = RopeScaling::kLinear, .factor = 4}),
              {0.25, 0.025, 0.0025, 0.00025});
}

// Over 8192 positions pair 3 turns 8192 · 0.001 / 2π = 1.303797 times: between 1 and 4, so (1.303797 - 1) / 3 = 0.101266 of it stays and the rest
// is divided by 8. The pairs before it turn 13 times and more, and stay.
TEST(RopeFrequencies, Llama3KeepsTheFastAndBlendsTheSlow) {
  const auto f = rope_frequencies(kHeadDim, {.scaling = RopeScaling::kLlama3, .factor = 8});
  constexpr double kKept = (8.192 / 6.283185307179586 - 1) / 3;
  expect_near(f, {1, 0.1, 0.01, 0.001 * (kKept + (1 - kKept) / 8)});
  // Over 4000 it turns 0.64 times: less than once, and is stretched in full.
  const auto shorter =
      rope_frequencies(kHeadDim, {.scaling = RopeScaling::kLlama3, .factor = 8, .original_seq_len = 4000});
  EXPECT_NEAR(shorter[3], 0.000125, 1e-15);
}

}  // namespace
}  // namespace tessera::ops
