#include "runtime/train/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::array kStreams = {StreamId::kCompute, StreamId::kGather, StreamId::kReduce, StreamId::kPipe};

StreamId stream_named(std::string_view channel) {
  const auto* at = std::ranges::find(kStreams, channel, [](StreamId stream) { return name_of(stream); });
  require(at != kStreams.end(), "a communicator's channel is the name of its stream");
  return *at;
}

// What the host's thread does first in an instruction. Where it does more, the executor says so (enter).
TraceClass first_class_of(OpCode op) {
  switch (op) {
    case OpCode::kWaitUnshard:
    case OpCode::kWaitReduce:
    case OpCode::kHeadLoss:  // for the number of targets
    case OpCode::kAgreeLoss: return TraceClass::kWait;
    case OpCode::kAgreeTokens:
    case OpCode::kUnshard:
    case OpCode::kReshard:
    case OpCode::kReduce:
    case OpCode::kReduceReplicas:
    case OpCode::kDropGradient:
    case OpCode::kRehearseBroadcast: return TraceClass::kHost;
    case OpCode::kForward:
    case OpCode::kBackward:
    case OpCode::kOpenGradient:
    case OpCode::kMergeLanes:
    case OpCode::kAgreeNorm:  // the sum of squares
    case OpCode::kUpdate:
    case OpCode::kForwardOnly:
    case OpCode::kEvaluateHead:
    case OpCode::kLogits: return TraceClass::kCompute;
  }
  throw InternalError("an instruction has a class");
}

// The decision that an instruction waits for, where it does something else as well or is no wait by name.
std::string_view awaited_by(OpCode op) {
  switch (op) {
    case OpCode::kHeadLoss: return "tokens";
    case OpCode::kAgreeNorm: return "norm";
    case OpCode::kAgreeLoss: return "loss";
    default: return "";
  }
}

std::string what_of(const StepProgram& program, const Instruction& i) {
  if (i.segment >= 0) return program.segment_names[static_cast<std::size_t>(i.segment)];
  if (i.unit >= 0) return program.unit_names[static_cast<std::size_t>(i.unit)];
  return std::string(awaited_by(i.op));
}

}  // namespace

TraceRecorder::TraceRecorder(StepRange steps, std::size_t max_spans) : steps_(steps), max_spans_(max_spans) {}

bool TraceRecorder::has_room() const {
  std::size_t num_spans = 0;
  for (const auto& spans : spans_) num_spans += spans.size();
  return num_spans < max_spans_;
}

void TraceRecorder::begin_step(std::int64_t step) {
  if (step < steps_.first || step > steps_.last || step <= last_step_) return;
  last_step_ = step;
  if (!has_room()) {
    ++num_dropped_;
    return;
  }
  open_window(fmt::format("step {}", step), "", step);
}

void TraceRecorder::begin_evaluation(std::int64_t step) {
  if (step < steps_.first || step >= steps_.last || !has_room()) return;
  open_window(fmt::format("evaluation after step {}", step), "evaluate", step);
}

void TraceRecorder::open_window(std::string name, std::string phase, std::int64_t step) {
  window_ = {.trace_class = TraceClass::kWindow,
             .name = std::move(name),
             .phase = std::move(phase),
             .step = step,
             .begin_ns = monotonic_ns()};
  recording_ = true;
}

void TraceRecorder::end_window() {
  if (!recording_) return;
  window_.end_ns = monotonic_ns();
  spans_of(StreamId::kCompute).push_back(std::move(window_));
  recording_ = false;
}

void TraceRecorder::begin(const StepProgram& program, const Instruction& instruction) {
  if (!recording_) return;
  text_ = program.text(instruction);
  const std::string_view awaited = awaited_by(instruction.op);
  awaited_ = awaited.empty() ? text_ : fmt::format("wait {}", awaited);
  const TraceClass first = first_class_of(instruction.op);
  open_ = {.trace_class = first,
           .name = first == TraceClass::kWait ? awaited_ : text_,
           .what = what_of(program, instruction),
           .phase = instruction.phase,
           .step = window_.step,
           .micro_batch = instruction.micro_batch,
           .begin_ns = monotonic_ns()};
}

void TraceRecorder::begin_data() {
  if (!recording_) return;
  open_ = {.trace_class = TraceClass::kData,
           .name = "load batch",
           .phase = window_.phase,
           .step = window_.step,
           .begin_ns = monotonic_ns()};
}

void TraceRecorder::enter(TraceClass trace_class) {
  if (!recording_) return;
  open_.end_ns = monotonic_ns();
  spans_of(StreamId::kCompute).push_back(open_);
  open_.trace_class = trace_class;
  open_.name = trace_class == TraceClass::kWait ? awaited_ : text_;
  open_.begin_ns = open_.end_ns;
}

void TraceRecorder::end() {
  if (!recording_) return;
  open_.end_ns = monotonic_ns();
  spans_of(StreamId::kCompute).push_back(std::move(open_));
}

void TraceRecorder::on_finished(const TimedCall& call) {
  const CollectiveIdentity& identity = call.identity;
  const StreamId stream = stream_named(call.channel);
  spans_of(stream).push_back({.trace_class = TraceClass::kCommunication,
                              .stream = stream,
                              .name = fmt::format("{} {}", name_of(identity.op), identity.what_view()),
                              .what = std::string(identity.what_view()),
                              .phase = std::string(identity.phase_view()),
                              .step = identity.step,
                              .micro_batch = identity.micro_batch,
                              .begin_ns = call.started_ns,
                              .end_ns = call.finished_ns,
                              .call = {.op = identity.op,
                                       .group = std::string(call.group),
                                       .group_size = call.group_size,
                                       .sequence = identity.sequence,
                                       .bytes = identity.num_elements * size_of(identity.dtype),
                                       .queued_ns = call.started_ns - call.enqueued_ns,
                                       .waited_ns = call.waited_ns}});
}

std::vector<TraceSpan> TraceRecorder::take() {
  end_window();
  std::vector<TraceSpan> all;
  for (std::vector<TraceSpan>& spans : spans_) {
    // A thread's spans are nested or apart: by begin, and of equal begins the longer first.
    std::ranges::sort(spans, [](const TraceSpan& a, const TraceSpan& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    std::ranges::move(spans, std::back_inserter(all));
    spans = {};
  }
  return all;
}

}  // namespace tessera
