#include "tools/step_baseline.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// A step of 100 FLOPs. Contender 1 is the fastest over all windows (0.05 seconds per FLOP in all, against 0.06), although not in each.
TEST(PairRates, HoldsEveryStepAgainstTheFastestContenderBeforeAndAfterIt) {
  const std::vector<ProductWindow> windows = {{0.02, 0.01}, {0.02, 0.01}, {0.02, 0.03}};
  const PairedRates rates = pair_rates(100, {2.0, 2.5}, windows);
  // Products would have taken 100 × 0.01 = 1 s beside the first step, 100 × 0.02 = 2 s beside the second.
  EXPECT_DOUBLE_EQ(rates.lowest, 1.0 / 2.0);
  EXPECT_DOUBLE_EQ(rates.highest, 2.0 / 2.5);
  EXPECT_DOUBLE_EQ(rates.steps, 200 / 4.5);
  EXPECT_DOUBLE_EQ(rates.products, 200 / 3.0);
}

TEST(PairRates, IsTheShareOfProductsWhateverTheMachineDoesBetweenSteps) {
  // Twice as slow from the second step on, products and steps alike: four fifths of a step are products all the time.
  const PairedRates rates = pair_rates(100, {1.25, 2.5, 2.5}, {{0.01}, {0.01}, {0.03}, {0.01}});
  EXPECT_DOUBLE_EQ(rates.lowest, 0.8);
  EXPECT_DOUBLE_EQ(rates.highest, 0.8);
  EXPECT_DOUBLE_EQ(rates.steps / rates.products, 0.8);
}

TEST(StepBaseline, TimesEveryContenderAndTheBestIsNoSlowerThanAnyMean) {
  StepBaseline baseline(1, 32, 32, 128);
  for (int i = 0; i < 2; ++i) {
    const ProductWindow window = baseline.measure();
    ASSERT_EQ(window.size(), 4U);
    for (const double seconds_per_flop : window) {
      EXPECT_GT(seconds_per_flop, 0);
      EXPECT_LE(1 / seconds_per_flop, baseline.best() * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace tessera
