// The files of a trace (docs/trace.md): one per rank, and all of them merged for a timeline viewer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh.h"
#include "runtime/config/job_config.h"
#include "runtime/train/trace_clock.h"
#include "runtime/train/trace_span.h"

namespace tessera {

// Whose trace it is, and what its times mean.
struct TraceHeader {
  std::string run;  // 16 hex digits, equal on all ranks of one start
  int rank = 0, world_size = 1;
  Coordinates at;
  std::string host;
  StepRange steps;                     // as asked for
  std::int64_t num_dropped_steps = 0;  // of those, the ones that found no room
  std::int64_t origin_ns = 0;          // CLOCK_MONOTONIC of rank 0 at the time 0 of all files
  ClockOffset clock;                   // from this rank's clock to rank 0's; contained in the times already
  friend bool operator==(const TraceHeader&, const TraceHeader&) = default;
};

struct RankTrace {
  TraceHeader header;
  std::vector<TraceSpan> spans;  // times: ns since the origin, on rank 0's clock; by thread, then in order of time
};

// DeviceError where the file cannot be written.
void write_rank_trace(const std::string& path, const RankTrace& trace);
// DataError with the path and what is wrong.
RankTrace read_rank_trace(const std::string& path);
// The spans of all rank files in one, compressed; one line in memory at a time. DataError, DeviceError.
void merge_traces(const std::vector<std::string>& rank_paths, const std::string& path);

// The name of the span that stands for all waiting for peers inside a call.
inline constexpr std::string_view kPeerWaitName = "wait for peers";

}  // namespace tessera
