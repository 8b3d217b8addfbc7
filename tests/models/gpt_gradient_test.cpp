// Properties of the gradients that need no reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/rng.h"
#include "tests/models/gpt_harness.h"

namespace tessera {
namespace {

constexpr std::int64_t kBatch = 3;

class GptGradients : public ::testing::TestWithParam<const char*> {
 protected:
  ModelConfig model() const { return GetParam() == std::string("gpt2") ? test::small_gpt2() : test::small_llama(); }
};
INSTANTIATE_TEST_SUITE_P(Families, GptGradients, ::testing::Values("gpt2", "llama"),
                         [](const auto& test) { return std::string(test.param); });

double length(std::span<const float> v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

// The slope of the loss along g/|g| plus a random direction of length 1 is |g| + g·random: for each parameter by
// central differences of the exactly summed loss.
TEST_P(GptGradients, AgreeWithFiniteDifferencesAlongADirectionPerParameter) {
  test::GptHarness gpt(model(), kBatch);
  gpt.fill_weights(11);
  const test::Tokens tokens = test::random_tokens(model(), kBatch, 12);
  gpt.step(tokens, false, 1.0F);
  const double step = 1.0 / 256;

  for (std::size_t k = 0; k < gpt.spec().parameters.size(); ++k) {
    const std::string& name = gpt.spec().parameters[k].name;
    const std::span<float> values = gpt.parameter(static_cast<int>(k));
    std::vector<float> gradient(values.size(), 0.0F);  // a tied table's is the sum of its two parts
    for (int s = 0; s < gpt.num_segments(); ++s) {
      const auto& indices = gpt.spec().segments[static_cast<std::size_t>(s)].parameters;
      for (std::size_t p = 0; p < indices.size(); ++p) {
        if (indices[p] != static_cast<int>(k)) continue;
        const std::span<float> part = gpt.gradient(s, static_cast<int>(p));
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += part[i];
      }
    }
    if (name.ends_with("key.bias")) continue;  // 0 but for rounding: softmax does not see it

    const CounterRng rng(13, RandomPurpose::kTest, k);
    std::vector<float> direction(values.size());
    for (std::size_t i = 0; i < direction.size(); ++i) direction[i] = static_cast<float>(rng.normal(i));
    const double random_length = length(direction), gradient_length = length(gradient);
    double slope = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      direction[i] = static_cast<float>(direction[i] / random_length + gradient[i] / gradient_length);
      slope += static_cast<double>(gradient[i]) * direction[i];
    }
    const std::vector<float> before(values.begin(), values.end());
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(before[i] + distance * direction[i]);
      return gpt.evaluate(tokens).sum.value();
    };
    // Richardson's extrapolation of two central differences: the error falls with the fourth power of the step.
    const double coarse = (loss_at(2 * step) - loss_at(-2 * step)) / (4 * step);
    const double fine = (loss_at(step) - loss_at(-step)) / (2 * step);
    std::ranges::copy(before, values.begin());
    EXPECT_NEAR((4 * fine - coarse) / 3, slope, 1e-3 * gradient_length) << name;
  }
}

TEST_P(GptGradients, AssigningLeavesNothingOfWhatWasThere) {
  test::GptHarness gpt(model(), kBatch);
  gpt.fill_weights(1);
  test::Tokens tokens = test::random_tokens(model(), kBatch, 2);
  for (std::int32_t& t : tokens.inputs) t = t % 5;  // rows 5 to 66 of the table are not looked up
  gpt.fill_gradients(std::numeric_limits<float>::quiet_NaN());
  gpt.step(tokens, false, 1.0F);
  for (const float g : gpt.all_gradients()) ASSERT_TRUE(std::isfinite(g));
  const std::span<float> lookup = gpt.gradient(0, 0);
  const auto hidden = static_cast<std::size_t>(model().hidden_size);
  EXPECT_GT(length(lookup.first(5 * hidden)), 0.0);
  for (const float g : lookup.subspan(5 * hidden)) ASSERT_EQ(g, 0.0F);
}

TEST_P(GptGradients, ASecondMicroBatchAdds) {
  test::GptHarness gpt(model(), kBatch);
  gpt.fill_weights(3);
  const test::Tokens first = test::random_tokens(model(), kBatch, 4), second = test::random_tokens(model(), kBatch, 5);
  gpt.step(first, false, 0.25F);
  const std::vector<float> a = gpt.all_gradients();
  gpt.step(second, false, 0.25F);
  const std::vector<float> b = gpt.all_gradients();
  gpt.step(first, false, 0.25F);
  gpt.step(second, true, 0.25F);
  const std::vector<float> both = gpt.all_gradients();
  const double size = length(both);
  for (std::size_t i = 0; i < both.size(); ++i) ASSERT_NEAR(both[i], a[i] + b[i], 1e-6 * size);
}

TEST_P(GptGradients, ScaleWithThePowerOfTwoTheyAreScaledBy) {
  test::GptHarness gpt(model(), kBatch);
  gpt.fill_weights(3);
  const test::Tokens tokens = test::random_tokens(model(), kBatch, 4);
  gpt.step(tokens, false, 1.0F);
  const std::vector<float> whole = gpt.all_gradients();
  gpt.step(tokens, false, 0.25F);
  const std::vector<float> quarter = gpt.all_gradients();
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(quarter[i], 0.25F * whole[i]);
}

TEST_P(GptGradients, IgnoredTargetsHaveNoLossAndNoGradient) {
  test::GptHarness gpt(model(), kBatch);
  gpt.fill_weights(6);
  test::Tokens tokens = test::random_tokens(model(), kBatch, 7);
  std::ranges::fill(tokens.targets, -100);
  const LossSum none = gpt.step(tokens, false, 1.0F);
  EXPECT_EQ(none.num_targets, 0);
  EXPECT_EQ(none.sum.value(), 0.0);
  EXPECT_EQ(none.max_loss, -std::numeric_limits<float>::infinity());
  for (const float g : gpt.all_gradients()) ASSERT_EQ(g, 0.0F);

  // One valid target: added to what another micro-batch left, an ignored one changes nothing.
  tokens.targets[5] = 3;
  EXPECT_EQ(gpt.step(tokens, false, 1.0F).num_targets, 1);
  const std::vector<float> before = gpt.all_gradients();
  EXPECT_GT(length(before), 0.0);
  tokens.targets[5] = -100;
  gpt.step(tokens, true, 1.0F);
  EXPECT_EQ(gpt.all_gradients(), before);
}

TEST_P(GptGradients, TheMeanLossOfUniformLogitsIsTheLogarithmOfTheVocabulary) {
  test::GptHarness gpt(model(), kBatch);
  gpt.fill_weights(8);
  std::ranges::fill(gpt.parameter(gpt.spec().segments.back().parameters[0]), 0.0F);  // final gain 0: logits are 0 …
  if (model().norm == "layernorm") std::ranges::fill(gpt.parameter(gpt.spec().segments.back().parameters[1]), 0.0F);
  const LossSum loss = gpt.evaluate(test::random_tokens(model(), kBatch, 9));
  EXPECT_NEAR(loss.sum.value() / static_cast<double>(loss.num_targets), 4.204692619390966, 1e-6);  // … and ln 67
}

TEST_P(GptGradients, ANanInAWeightShowsInLossAndMaximum) {
  test::GptHarness gpt(model(), kBatch);
  gpt.fill_weights(8);
  gpt.parameter(0)[0] = std::numeric_limits<float>::quiet_NaN();
  test::Tokens tokens = test::random_tokens(model(), kBatch, 9);
  tokens.inputs[0] = 0;
  const LossSum loss = gpt.step(tokens, false, 1.0F);
  EXPECT_TRUE(std::isnan(loss.sum.value()));
  EXPECT_TRUE(std::isnan(loss.max_loss));
}

}  // namespace
}  // namespace tessera
