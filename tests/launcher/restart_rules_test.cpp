#include "launcher/restart_rules.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

// The table of docs/design.md, section 13.
TEST(RestartRules, FollowWhatAnotherStartMayEndOtherwise) {
  const std::map<int, bool> again = {{0, false}, {2, false}, {3, false}, {4, true},   {5, false},
                                     {6, false}, {7, false}, {70, true}, {75, false}, {130, false}};
  for (const auto& [code, expected] : again) EXPECT_EQ(may_start_again(code, false), expected) << code;
  EXPECT_FALSE(may_start_again(4, true)) << "ranks with different programs make the same calls again";
}

TEST(RestartRules, PauseLongerWhereNothingIsGained) {
  EXPECT_EQ(pause_before_next(0).count(), 0);
  EXPECT_EQ(pause_before_next(1).count(), 1);
  EXPECT_EQ(pause_before_next(2).count(), 2);
  EXPECT_EQ(pause_before_next(5).count(), 16);
  EXPECT_EQ(pause_before_next(6).count(), 30);
  EXPECT_EQ(pause_before_next(1000).count(), 30);
}

}  // namespace
}  // namespace tessera
