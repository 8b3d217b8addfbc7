#include "runtime/train/schedule.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(LearningRate, WarmsUpLinearlyFromTheFirstUpdate) {
  const ScheduleConfig schedule{.name = "constant", .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0.8, 100, 1), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0.8, 100, 4), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0.8, 100, 50), 0.8);
}

// ½ (1 + cos(π t/T)): 1 at t = 0, ½ at T/2, 0 at T.
TEST(LearningRate, CosineFallsToItsMinimumAndStaysThere) {
  ScheduleConfig schedule{.name = "cosine", .warmup_steps = 10, .min_learning_rate = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.1, 110, 10), 1.1);
  EXPECT_NEAR(learning_rate(schedule, 1.1, 110, 60), 0.6, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.1, 110, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.1, 110, 500), 0.1);
  schedule.decay_steps = 20;
  EXPECT_NEAR(learning_rate(schedule, 1.1, 110, 20), 0.6, 1e-15);
}

TEST(LearningRate, LinearIsAStraightLine) {
  const ScheduleConfig schedule{.name = "linear", .min_learning_rate = 0.0};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 4, 1), 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 4, 3), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 4, 4), 0.0);
}

}  // namespace
}  // namespace tessera
