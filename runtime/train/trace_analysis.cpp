#include "runtime/train/trace_analysis.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace tessera {
namespace {

using Spans = std::vector<const TraceSpan*>;

IntervalSet union_of_spans(std::span<const TraceSpan* const> spans) {
  std::vector<Interval> intervals;
  intervals.reserve(spans.size());
  for (const TraceSpan* span : spans) intervals.push_back({span->begin_ns, span->end_ns});
  return IntervalSet(std::move(intervals));
}

Spans of_class(const Spans& spans, TraceClass trace_class) {
  Spans chosen;
  std::ranges::copy_if(spans, std::back_inserter(chosen),
                       [&](const TraceSpan* span) { return span->trace_class == trace_class; });
  return chosen;
}

CollectiveKind& kind_of(std::vector<CollectiveKind>& kinds, CollectiveOp op, std::string_view phase) {
  const auto at = std::ranges::find_if(kinds, [&](const CollectiveKind& k) { return k.op == op && k.phase == phase; });
  return at != kinds.end() ? *at : kinds.emplace_back(op, std::string(phase), CommunicationTimes{});
}

std::vector<CollectiveKind> kinds_of(const Spans& calls, const IntervalSet& compute) {
  std::vector<CollectiveKind> kinds;
  for (const TraceSpan* call : calls) kind_of(kinds, call->call.op, call->phase);
  for (CollectiveKind& kind : kinds) {
    Spans of_kind;
    std::ranges::copy_if(calls, std::back_inserter(of_kind),
                         [&](const TraceSpan* call) { return call->call.op == kind.op && call->phase == kind.phase; });
    kind.times = times_of(of_kind, compute);
  }
  return kinds;
}

StepTimes times_of_step(std::int64_t step, const Spans& spans) {
  const auto union_of_class = [&](TraceClass c) { return union_of_spans(of_class(spans, c)); };
  const Spans calls = of_class(spans, TraceClass::kCommunication);
  const IntervalSet compute = union_of_class(TraceClass::kCompute), data = union_of_class(TraceClass::kData);
  const IntervalSet window = union_of_class(TraceClass::kWindow);
  const IntervalSet busy = union_of(union_of(compute, data), union_of_spans(calls));
  return {.step = step,
          .step_ns = window.length(),
          .compute_ns = compute.length(),
          .wait_ns = union_of_class(TraceClass::kWait).length(),
          .data_ns = data.length(),
          .host_ns = union_of_class(TraceClass::kHost).length(),
          .idle_ns = difference_of(window, busy).length(),
          .communication = times_of(calls, compute),
          .kinds = kinds_of(calls, compute)};
}

}  // namespace

CommunicationTimes& CommunicationTimes::operator+=(const CommunicationTimes& other) {
  num_calls += other.num_calls;
  bytes += other.bytes;
  union_ns += other.union_ns;
  overlapped_ns += other.overlapped_ns;
  moving_ns += other.moving_ns;
  return *this;
}

const CommunicationTimes* StepTimes::find(CollectiveOp op, std::string_view phase) const {
  const auto at = std::ranges::find_if(kinds, [&](const CollectiveKind& k) { return k.op == op && k.phase == phase; });
  return at == kinds.end() ? nullptr : &at->times;
}

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  step_ns += other.step_ns;
  compute_ns += other.compute_ns;
  wait_ns += other.wait_ns;
  data_ns += other.data_ns;
  host_ns += other.host_ns;
  idle_ns += other.idle_ns;
  communication += other.communication;
  for (const CollectiveKind& kind : other.kinds) kind_of(kinds, kind.op, kind.phase).times += kind.times;
  return *this;
}

CommunicationTimes times_of(std::span<const TraceSpan* const> calls, const IntervalSet& compute) {
  const IntervalSet together = union_of_spans(calls);
  CommunicationTimes times = {.num_calls = static_cast<std::int64_t>(calls.size()),
                              .union_ns = together.length(),
                              .overlapped_ns = intersection_of(together, compute).length()};
  std::vector<Interval> moving;
  for (const TraceSpan* call : calls) {
    times.bytes += static_cast<std::int64_t>(call->call.bytes);
    moving.push_back({call->begin_ns + call->call.waited_ns, call->end_ns});
  }
  times.moving_ns = IntervalSet(std::move(moving)).length();
  return times;
}

std::vector<StepTimes> analyse(const std::vector<TraceSpan>& spans) {
  std::map<std::int64_t, Spans> by_step;
  for (const TraceSpan& span : spans) {
    if (span.phase != "evaluate") by_step[span.step].push_back(&span);
  }
  std::vector<StepTimes> steps;
  for (const auto& [step, of_step] : by_step) steps.push_back(times_of_step(step, of_step));
  return steps;
}

}  // namespace tessera
