// What `tessera trace` finds in the files of a trace, as plain data, and its two forms.
#pragma once

#include <string>
#include <vector>

#include "runtime/train/trace_analysis.h"
#include "runtime/train/trace_file.h"

namespace tessera {

struct TraceReport {
  struct Rank {
    TraceHeader header;
    std::vector<StepTimes> steps;
  };
  struct Damaged {
    std::string path, reason;
  };
  std::vector<Rank> ranks;   // those whose file could be read, ascending
  std::vector<int> missing;  // world ranks without a file
  std::vector<Damaged> damaged;

  bool complete() const { return missing.empty() && damaged.empty(); }
};

// Reads RUN/trace/rank-*.json, one rank at a time. ConfigError where there is no such run directory, DataError where it holds
// no trace.
TraceReport read_trace_report(const std::string& run);

// What of a report is shown; -1: all.
struct TraceSelection {
  std::int64_t step = -1;
  int rank = -1;
};
// DataError where nothing is left.
TraceReport select(TraceReport report, const TraceSelection& selection);

// Tables: a row per rank (mean over its steps), or per step of the one rank that was selected; and a row per kind of
// collective (mean over steps and ranks).
std::string to_text(const TraceReport& report, const TraceSelection& selection);
// docs/trace.md has the schema.
std::string to_json(const TraceReport& report);

}  // namespace tessera
