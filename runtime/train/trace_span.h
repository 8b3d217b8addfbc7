// What a trace is made of: spans of one rank's threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collective_identity.h"
#include "runtime/program/step_program.h"

namespace tessera {

// What a thread did. On the host's thread (the compute stream) spans of all but kWindow follow each other and never overlap.
enum class TraceClass : std::uint8_t {
  kWindow,         // a whole step or evaluation, around all else
  kCompute,        // the model and the optimizer
  kCommunication,  // a collective call, on its stream
  kWait,           // the compute stream is blocked on a collective
  kData,           // a batch is loaded
  kHost,           // memory is given back or taken, a call is queued
};
inline constexpr int kNumTraceClasses = 6;
std::string_view name_of(TraceClass trace_class);

// Of a kCommunication span.
struct TracedCall {
  CollectiveOp op = CollectiveOp::kBarrier;
  std::string group;
  int group_size = 1;
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;  // this rank's input: its shard of an all_gather, its whole gradient of a reduce_scatter
  std::int64_t queued_ns = 0, waited_ns = 0;  // before it started; of its time, waiting for peers
  friend bool operator==(const TracedCall&, const TracedCall&) = default;
};

struct TraceSpan {
  TraceClass trace_class = TraceClass::kCompute;
  StreamId stream = StreamId::kCompute;
  std::string name;  // "forward block.3", "all_gather block.3", "step 7"
  std::string what;  // the unit, segment or decision: "block.3", "norm"; "" for none
  std::string phase;
  std::int64_t step = 0;
  int micro_batch = -1;                   // -1: none
  std::int64_t begin_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC of the rank; in a file, since the trace's origin
  TracedCall call;                        // of kCommunication
  friend bool operator==(const TraceSpan&, const TraceSpan&) = default;
};

}  // namespace tessera
