// What a rank's trace says of its steps: how long things took together, and what of the communication was hidden behind
// compute. All times are lengths of unions of intervals, in ns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collective_identity.h"
#include "runtime/base/intervals.h"
#include "runtime/train/trace_span.h"

namespace tessera {

// Of some calls of one rank. What a call waited for peers counts as its beginning, as it is drawn (docs/trace.md): for calls
// of one stream, of which one runs at a time, it does not matter where it was.
struct CommunicationTimes {
  std::int64_t num_calls = 0;
  std::int64_t bytes = 0;          // sum of TracedCall::bytes
  std::int64_t union_ns = 0;       // at least one of them ran
  std::int64_t overlapped_ns = 0;  // … while the same rank computed
  std::int64_t moving_ns = 0;      // at least one of them moved data

  std::int64_t exposed_ns() const { return union_ns - overlapped_ns; }
  // All that ran waited for peers.
  std::int64_t waiting_ns() const { return union_ns - moving_ns; }
  CommunicationTimes& operator+=(const CommunicationTimes& other);
  friend bool operator==(const CommunicationTimes&, const CommunicationTimes&) = default;
};

// The calls of one op in one phase.
struct CollectiveKind {
  CollectiveOp op = CollectiveOp::kBarrier;
  std::string phase;
  CommunicationTimes times;
};

struct StepTimes {
  std::int64_t step = 0;
  std::int64_t step_ns = 0;  // from before the batch is loaded to after the update
  std::int64_t compute_ns = 0, wait_ns = 0, data_ns = 0, host_ns = 0;
  std::int64_t idle_ns = 0;  // nothing computed, no call ran, no batch was loaded
  CommunicationTimes communication;
  std::vector<CollectiveKind> kinds;  // in the order of their first calls, a stream after the other

  const CommunicationTimes* find(CollectiveOp op, std::string_view phase) const;
  // Adds up all but the step's number; a kind that is not here yet is appended.
  StepTimes& operator+=(const StepTimes& other);
};

// Calls of a rank, and when it computed.
CommunicationTimes times_of(std::span<const TraceSpan* const> calls, const IntervalSet& compute);
// The training steps of one rank; evaluations between them are not among them.
std::vector<StepTimes> analyse(const std::vector<TraceSpan>& spans);

}  // namespace tessera
