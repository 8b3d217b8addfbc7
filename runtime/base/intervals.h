// Sets of moments on one clock, as disjoint half-open intervals in ascending order: how long several things together
// took. Sums of durations count twice what ran at the same time; lengths of unions do not.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tessera {

// [begin, end), in whatever unit the clock has.
struct Interval {
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

class IntervalSet {
 public:
  IntervalSet() = default;
  IntervalSet(std::initializer_list<Interval> intervals) : IntervalSet(std::vector<Interval>(intervals)) {}
  // The union of intervals in any order; those that touch become one, empty ones vanish.
  explicit IntervalSet(std::vector<Interval> intervals);

  const std::vector<Interval>& intervals() const { return intervals_; }
  std::int64_t length() const;
  friend bool operator==(const IntervalSet&, const IntervalSet&) = default;

 private:
  std::vector<Interval> intervals_;
};

IntervalSet union_of(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersection_of(const IntervalSet& a, const IntervalSet& b);
// What is in a and not in b.
IntervalSet difference_of(const IntervalSet& a, const IntervalSet& b);

}  // namespace tessera
