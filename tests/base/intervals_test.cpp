#include "runtime/base/intervals.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tessera {
namespace {

TEST(Intervals, ThatOverlapOrTouchAreOne) {
  EXPECT_EQ(IntervalSet({{5, 8}, {0, 2}, {1, 3}, {8, 9}, {4, 4}}), IntervalSet({{0, 3}, {5, 9}}));
  EXPECT_EQ(IntervalSet({{0, 3}, {1, 2}}).length(), 3);
  EXPECT_EQ(IntervalSet().length(), 0);
}

TEST(Intervals, AreHalfOpenSoNeighboursShareNothing) {
  EXPECT_EQ(intersection_of({{0, 5}}, {{5, 9}}).length(), 0);
  EXPECT_EQ(difference_of({{0, 5}}, {{5, 9}}), IntervalSet({{0, 5}}));
}

TEST(Intervals, OfSeveralPiecesIntersectAndSubtract) {
  const IntervalSet a = {{0, 10}, {20, 30}, {40, 41}}, b = {{5, 22}, {25, 26}, {29, 50}};
  EXPECT_EQ(intersection_of(a, b), IntervalSet({{5, 10}, {20, 22}, {25, 26}, {29, 30}, {40, 41}}));
  EXPECT_EQ(difference_of(a, b), IntervalSet({{0, 5}, {22, 25}, {26, 29}}));
  EXPECT_EQ(union_of(a, b), IntervalSet({{0, 50}}));
}

// Against sets of the moments themselves.
TEST(Intervals, OfAnyShapeAgreeWithSetsOfMoments) {
  std::mt19937 random(7);
  const auto draw = [&] {
    std::vector<Interval> intervals;
    for (int i = 0; i < 6; ++i) {
      const auto begin = static_cast<std::int64_t>(random() % 40);
      intervals.push_back({begin, begin + static_cast<std::int64_t>(random() % 8)});
    }
    return intervals;
  };
  const auto moments = [](const std::vector<Interval>& intervals) {
    std::set<std::int64_t> set;
    for (const Interval& each : intervals) {
      for (std::int64_t t = each.begin; t < each.end; ++t) set.insert(t);
    }
    return set;
  };
  for (int round = 0; round < 500; ++round) {
    const std::vector<Interval> some = draw(), others = draw();
    const IntervalSet a(some), b(others);
    std::set<std::int64_t> common, rest, all = moments(some);
    for (const std::int64_t t : moments(some)) (moments(others).count(t) > 0 ? common : rest).insert(t);
    all.merge(moments(others));
    EXPECT_EQ(moments(intersection_of(a, b).intervals()), common);
    EXPECT_EQ(moments(difference_of(a, b).intervals()), rest);
    EXPECT_EQ(union_of(a, b).length(), static_cast<std::int64_t>(all.size()));
    EXPECT_EQ(intersection_of(a, b).length() + difference_of(a, b).length(), a.length());
  }
}

}  // namespace
}  // namespace tessera
