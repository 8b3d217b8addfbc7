#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "parallel/teardown.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using enum TeardownState;

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Teardown, WalksThroughEveryStateInOrderAndTellsOfEach) {
  std::vector<TeardownState> seen;
  Teardown teardown([&](TeardownState state) { seen.push_back(state); });
  const std::vector<TeardownState> order = {kStreams, kPeers, kBarrier, kCommunicators, kMpi, kGone};
  for (const TeardownState state : order) teardown.enter(state);
  EXPECT_EQ(seen, order);
  EXPECT_EQ(teardown.state(), kGone);
}

TEST(Teardown, HasNoOtherTransitionThanThoseOfItsTable) {
  for (const TeardownRow& from : teardown_rows()) {
    for (const TeardownRow& to : teardown_rows()) {
      bool in_table = false;
      for (const TeardownTransition& t : teardown_transitions()) in_table |= t.from == from.state && t.to == to.state;
      Teardown teardown;
      // Every state can be reached; the table says how.
      for (const TeardownState step : {kStreams, kPeers, kBarrier, kCommunicators, kMpi, kGone}) {
        if (teardown.state() != from.state) teardown.enter(step);
      }
      ASSERT_EQ(teardown.state(), from.state);
      EXPECT_EQ(teardown.may_enter(to.state), in_table) << from.name << " to " << to.name;
      if (in_table) continue;
      EXPECT_THROW(teardown.enter(to.state), InternalError) << from.name << " to " << to.name;
    }
  }
}

TEST(Teardown, LeavesMpiAtOnceWhereNoJobWasBegun) {
  Teardown teardown;
  teardown.enter(kMpi);
  teardown.enter(kGone);
}

TEST(Teardown, SaysOfEveryStateWhatStillExists) {
  std::set<std::string> names;
  for (const TeardownRow& row : teardown_rows()) {
    EXPECT_FALSE(row.exists.empty()) << row.name;
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name;
    EXPECT_EQ(row_of(row.state).name, row.name);
  }
}

TEST(Teardown, AStateIsOverdueAfterItsOwnLimitOrTheTimeoutWhicheverIsShorter) {
  const auto overdue_after = [](double timeout, TeardownState state, double seconds) {
    Teardown teardown;
    teardown.set_timeout(timeout);
    for (const TeardownState step : {kStreams, kPeers, kBarrier, kCommunicators, kMpi}) {
      if (teardown.state() != state) teardown.enter(step);
    }
    return teardown.overdue(monotonic_ns() + static_cast<std::int64_t>(seconds * static_cast<double>(kSecond)));
  };
  EXPECT_FALSE(overdue_after(600, kBarrier, 9));
  const auto late = overdue_after(600, kBarrier, 11);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->state, kBarrier);
  EXPECT_EQ(late->limit_seconds, 10);
  EXPECT_TRUE(overdue_after(3, kBarrier, 4)) << "the timeout is shorter";
  EXPECT_FALSE(overdue_after(600, kPeers, 620)) << "a wait of a communicator reports it first, after 600 s";
  EXPECT_TRUE(overdue_after(600, kPeers, 640));
  EXPECT_TRUE(overdue_after(600, kMpi, 21));
}

TEST(Teardown, IsNeverOverdueWhileTheJobRuns) {
  const Teardown teardown;
  EXPECT_FALSE(teardown.overdue(monotonic_ns() + 1'000'000 * kSecond));
}

}  // namespace
}  // namespace tessera
