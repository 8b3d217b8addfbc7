#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/base/error.h"
#include "runtime/train/token_data.h"

namespace tessera {
namespace {

std::vector<std::int64_t> epoch(const SequenceOrder& order, std::int64_t index, std::int64_t global_batch_size) {
  std::vector<std::int64_t> windows;
  for (std::int64_t batch = index * order.batches_per_epoch(); batch < (index + 1) * order.batches_per_epoch();
       ++batch) {
    for (std::int64_t slot = 0; slot < global_batch_size; ++slot) windows.push_back(order.window(batch, slot));
  }
  return windows;
}

TEST(SequenceOrder, AnEpochVisitsEveryWindowOnce) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 10, 16, 17, 63, 64, 65, 1000, 4097}) {
    const SequenceOrder order(n, 1, 7, true);
    for (const std::int64_t e : {0, 1, 5}) {
      std::vector<std::int64_t> windows = epoch(order, e, 1);
      std::sort(windows.begin(), windows.end());
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(windows[static_cast<std::size_t>(i)], i) << n;
    }
  }
}

// Ten sequences in batches of six: one batch per epoch, and four sequences that this epoch does not see.
TEST(SequenceOrder, TheTailOfAnEpochIsDropped) {
  const SequenceOrder order(10, 6, 1, true);
  EXPECT_EQ(order.batches_per_epoch(), 1);
  EXPECT_EQ(order.dropped_per_epoch(), 4);
  std::set<std::int64_t> seen;
  for (std::int64_t e = 0; e < 3; ++e) {
    const std::vector<std::int64_t> windows = epoch(order, e, 6);
    const std::set<std::int64_t> distinct(windows.begin(), windows.end());
    EXPECT_EQ(distinct.size(), 6U);
    EXPECT_GE(*distinct.begin(), 0);
    EXPECT_LT(*distinct.rbegin(), 10);
    EXPECT_EQ(order.epoch_of(e), e);
    seen.insert(distinct.begin(), distinct.end());
  }
  EXPECT_GT(seen.size(), 6U);  // not the same tail each time
}

TEST(SequenceOrder, EpochsAndSeedsDiffer) {
  const SequenceOrder order(100, 10, 1, true), other_seed(100, 10, 2, true), same(100, 10, 1, true);
  EXPECT_NE(epoch(order, 0, 10), epoch(order, 1, 10));
  EXPECT_NE(epoch(order, 0, 10), epoch(other_seed, 0, 10));
  EXPECT_EQ(epoch(order, 3, 10), epoch(same, 3, 10));
}

TEST(SequenceOrder, WithoutShuffleTheOrderIsThatOfTheFiles) {
  const SequenceOrder order(10, 4, 1, false);
  EXPECT_EQ(epoch(order, 0, 4), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(epoch(order, 1, 4), epoch(order, 0, 4));
}

// Rank d of dp takes the d-th part of the batch; the parts together are the batch whatever dp is, because nothing here
// knows of ranks.
TEST(SequenceOrder, AnySplitOfABatchOverRanksSeesTheSameSet) {
  const SequenceOrder order(1000, 24, 3, true);
  std::multiset<std::int64_t> whole;
  for (std::int64_t slot = 0; slot < 24; ++slot) whole.insert(order.window(17, slot));
  for (const std::int64_t dp : {1, 2, 3, 4, 8}) {
    std::multiset<std::int64_t> parts;
    for (std::int64_t d = 0; d < dp; ++d) {
      for (std::int64_t slot = d * 24 / dp; slot < (d + 1) * 24 / dp; ++slot) parts.insert(order.window(17, slot));
    }
    EXPECT_EQ(parts, whole);
  }
}

// Over many epochs each window is first about equally often: 2000 draws of 10, expected 200 each with standard
// deviation 13.4; the statistic sum (observed - 200)^2 / 200 follows chi-square with 9 degrees of freedom, which
// exceeds 33.7 once in 10,000 seeds.
TEST(SequenceOrder, EveryWindowIsEquallyLikelyToComeFirst) {
  const SequenceOrder order(10, 10, 12345, true);
  std::vector<double> count(10, 0);
  for (std::int64_t e = 0; e < 2000; ++e) count[static_cast<std::size_t>(order.window(e, 0))] += 1;
  double statistic = 0;
  for (const double c : count) statistic += (c - 200) * (c - 200) / 200;
  EXPECT_LT(statistic, 33.7);
}

TEST(SequenceOrder, AnEpochSmallerThanTheBatchIsRefused) {
  try {
    SequenceOrder(5, 6, 1, true);
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "data: 5 sequences per epoch, fewer than batch.global_batch_size 6");
  }
}

}  // namespace
}  // namespace tessera
