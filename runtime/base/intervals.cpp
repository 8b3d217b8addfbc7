#include "runtime/base/intervals.h"

#include <algorithm>
#include <utility>

namespace tessera {

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  for (const Interval& each : intervals) {
    if (each.begin >= each.end) continue;
    if (!intervals_.empty() && each.begin <= intervals_.back().end) {
      intervals_.back().end = std::max(intervals_.back().end, each.end);
    } else {
      intervals_.push_back(each);
    }
  }
}

std::int64_t IntervalSet::length() const {
  std::int64_t sum = 0;
  for (const Interval& each : intervals_) sum += each.end - each.begin;
  return sum;
}

IntervalSet union_of(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> all = a.intervals();
  all.insert(all.end(), b.intervals().begin(), b.intervals().end());
  return IntervalSet(std::move(all));
}

IntervalSet intersection_of(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> common;
  auto x = a.intervals().begin(), y = b.intervals().begin();
  while (x != a.intervals().end() && y != b.intervals().end()) {
    common.push_back({std::max(x->begin, y->begin), std::min(x->end, y->end)});  // empty where they do not meet
    x->end < y->end ? ++x : ++y;
  }
  return IntervalSet(std::move(common));
}

IntervalSet difference_of(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> rest;
  auto y = b.intervals().begin();
  for (Interval left : a.intervals()) {
    while (y != b.intervals().end() && y->end <= left.begin) ++y;
    for (auto z = y; z != b.intervals().end() && z->begin < left.end; ++z) {
      rest.push_back({left.begin, z->begin});
      left.begin = std::max(left.begin, z->end);
    }
    rest.push_back(left);
  }
  return IntervalSet(std::move(rest));
}

}  // namespace tessera
