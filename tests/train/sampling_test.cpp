#include "runtime/train/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kDraws = 20000;

std::vector<double> frequencies(const std::vector<float>& logits, const SamplingOptions& options) {
  std::vector<double> result(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) result[static_cast<std::size_t>(sample_token(logits, options, i))] += 1;
  for (double& count : result) count /= kDraws;
  return result;
}

// Each frequency within 4.5 standard deviations of its probability: one seed in some 40,000 would miss it for four
// tokens.
void expect_distribution(const std::vector<double>& found, const std::vector<double>& probability) {
  ASSERT_EQ(found.size(), probability.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], probability[i], 4.5 * std::sqrt(probability[i] * (1 - probability[i]) / kDraws))
        << "token " << i;
  }
}

// Logits whose softmax is 1/10, 2/10, 3/10, 4/10.
const std::vector<float>& tenths() {
  static const std::vector<float> logits = {std::log(1.F), std::log(2.F), std::log(3.F), std::log(4.F)};
  return logits;
}

TEST(Sampling, TemperatureOneIsTheSoftmax) {
  expect_distribution(frequencies(tenths(), {.seed = 1}), {0.1, 0.2, 0.3, 0.4});
  expect_distribution(frequencies(tenths(), {.seed = 2}), {0.1, 0.2, 0.3, 0.4});
}

TEST(Sampling, TemperatureRaisesProbabilitiesToItsInverse) {
  // Temperature 1/2 squares: 1, 4, 9, 16 of 30. Temperature 2 takes roots.
  expect_distribution(frequencies(tenths(), {.temperature = 0.5, .seed = 3}),
                      {1 / 30.0, 4 / 30.0, 9 / 30.0, 16 / 30.0});
  const double roots = 1 + std::sqrt(2.0) + std::sqrt(3.0) + 2;
  expect_distribution(frequencies(tenths(), {.temperature = 2, .seed = 4}),
                      {1 / roots, std::sqrt(2.0) / roots, std::sqrt(3.0) / roots, 2 / roots});
}

TEST(Sampling, TopKRenormalisesTheKLikeliest) {
  expect_distribution(frequencies(tenths(), {.top_k = 2, .seed = 5}), {0, 0, 3 / 7.0, 4 / 7.0});
  expect_distribution(frequencies(tenths(), {.top_k = 1, .seed = 5}), {0, 0, 0, 1});
  expect_distribution(frequencies(tenths(), {.top_k = 100, .seed = 5}), {0.1, 0.2, 0.3, 0.4});
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  expect_distribution(frequencies(tenths(), {.top_p = 0.39, .seed = 6}), {0, 0, 0, 1});
  expect_distribution(frequencies(tenths(), {.top_p = 0.41, .seed = 6}), {0, 0, 3 / 7.0, 4 / 7.0});
  expect_distribution(frequencies(tenths(), {.top_p = 0.75, .seed = 6}), {0, 2 / 9.0, 3 / 9.0, 4 / 9.0});
  expect_distribution(frequencies(tenths(), {.top_p = 0.95, .seed = 6}), {0.1, 0.2, 0.3, 0.4});
  expect_distribution(frequencies(tenths(), {.top_p = 1e-9, .seed = 6}), {0, 0, 0, 1});
}

// After top-k 3 the probabilities are 2/9, 3/9, 4/9: the two largest reach 0.75 (7/9), which of the whole they would not (0.7).
TEST(Sampling, TopPMeasuresWhatTopKLeft) {
  expect_distribution(frequencies(tenths(), {.top_k = 3, .top_p = 0.75, .seed = 7}), {0, 0, 3 / 7.0, 4 / 7.0});
}

TEST(Sampling, TemperatureZeroIsTheLargestWithTheLowestId) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 5, 5, 2}, {.temperature = 0}, 0), 1);
  EXPECT_EQ(sample_token(std::vector<float>{-3, -3}, {.temperature = 0}, 9), 0);
}

TEST(Sampling, TopKTakesTheLowestIdsAmongEquals) {
  expect_distribution(frequencies({1, 1, 1, 1}, {.top_k = 2, .seed = 8}), {0.5, 0.5, 0, 0});
}

TEST(Sampling, LargeLogitsDoNotOverflow) {
  expect_distribution(frequencies({3e38F, 3e38F, -3e38F, 0}, {.seed = 9}), {0.5, 0.5, 0, 0});
  expect_distribution(frequencies({-3e38F, -3e38F, -3e38F, -3e38F}, {.temperature = 1e-3, .seed = 9}),
                      {0.25, 0.25, 0.25, 0.25});
}

TEST(Sampling, InfinityIsCertainAndMinusInfinityImpossible) {
  expect_distribution(frequencies({-kInfinity, 0, 0, -kInfinity}, {.seed = 10}), {0, 0.5, 0.5, 0});
  expect_distribution(frequencies({1, kInfinity, 3, kInfinity}, {.seed = 10}), {0, 0.5, 0, 0.5});
}

TEST(Sampling, ATokenIsAFunctionOfSeedAndPosition) {
  std::vector<std::int64_t> first, again, other;
  for (int i = 0; i < 50; ++i) {
    first.push_back(sample_token(tenths(), {.seed = 1}, i));
    other.push_back(sample_token(tenths(), {.seed = 2}, i));
  }
  for (int i = 49; i >= 0; --i) again.insert(again.begin(), sample_token(tenths(), {.seed = 1}, i));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(Sampling, NaNAndNothingPossibleAreErrors) {
  EXPECT_THROW(sample_token(std::vector<float>{1, std::nanf(""), 2}, {}, 0), NonFiniteError);
  EXPECT_THROW(sample_token(std::vector<float>{std::nanf("")}, {.temperature = 0}, 0), NonFiniteError);
  EXPECT_THROW(sample_token(std::vector<float>{-kInfinity, -kInfinity}, {}, 0), NonFiniteError);
}

TEST(Sampling, OptionsOutOfRangeAreRefused) {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = std::nan("")}, SamplingOptions{.top_k = -1},
        SamplingOptions{.top_p = 0}, SamplingOptions{.top_p = 1.5}, SamplingOptions{.top_p = std::nan("")}}) {
    EXPECT_THROW(sample_token(tenths(), options, 0), ConfigError);
  }
}

}  // namespace
}  // namespace tessera
