// A ledger's timeline in a few rows, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/ledger.h"

namespace tessera {

// A run of instructions: from one that runs a segment (or updates) to the next.
struct TimelineRow {
  std::string part;       // "micro 0: forward block.2", "micro 0: forward block.2 … micro 1: backward block.1"
  std::int64_t peak = 0;  // bytes, the most in it
  bool is_peak = false;   // holds the ledger's peak
  friend bool operator==(const TimelineRow&, const TimelineRow&) = default;
};

inline constexpr int kTimelineRows = 24;  // what fits a screen

// The micro-batch of the peak part by part, and all before and after it as one row each; then equally many neighbours are joined, so that there are
// at most max_rows (>= 1).
std::vector<TimelineRow> timeline_rows(const StepProgram& program, const Ledger& ledger, int max_rows);

// "backward block.3": the instruction at the peak; "parameters and moments" where no instruction takes anything.
std::string peak_place(const StepProgram& program, const Ledger& ledger);

}  // namespace tessera
