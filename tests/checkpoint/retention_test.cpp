#include "checkpoint/retention.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Steps = std::vector<std::int64_t>;

TEST(Retention, KeepsAllUnlessAskedOtherwise) {
  EXPECT_EQ(steps_to_delete({10, 20, 30}, {}), Steps{});
  EXPECT_EQ(steps_to_delete({10, 20, 30}, {.keep_every = 20}), Steps{});
}

TEST(Retention, KeepsSoManyOfTheNewest) {
  EXPECT_EQ(steps_to_delete({30, 10, 40, 20}, {.keep_latest = 2}), (Steps{10, 20}));
  EXPECT_EQ(steps_to_delete({10, 20}, {.keep_latest = 2}), Steps{});
  EXPECT_EQ(steps_to_delete({}, {.keep_latest = 1}), Steps{});
  EXPECT_EQ(steps_to_delete({10}, {.keep_latest = 1}), Steps{});
}

TEST(Retention, KeepsMultiplesForGood) {
  EXPECT_EQ(steps_to_delete({0, 10, 15, 20, 25, 30}, {.keep_latest = 1, .keep_every = 20}), (Steps{10, 15, 25}));
}

}  // namespace
}  // namespace tessera
