#include "runtime/train/trace_recorder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

const StepProgram& program() {
  static const StepProgram program = {
      .unit_names = {"root", "block.0"},
      .segment_names = {"embedding", "block.0", "head"},
      .instructions = {{.op = OpCode::kWaitUnshard, .unit = 1, .phase = "forward"},
                       {.op = OpCode::kForward, .segment = 1, .micro_batch = 0, .phase = "forward"},
                       {.op = OpCode::kHeadLoss, .segment = 2, .micro_batch = 0, .phase = "backward"}}};
  return program;
}

void finish_call(TraceRecorder& recorder, std::int64_t step) {
  if (!recorder.wants_calls()) return;
  CollectiveIdentity identity;
  identity.op = CollectiveOp::kAllGather;
  identity.num_elements = 3;
  identity.dtype = DType::kFloat32;
  identity.step = step;
  set_name(identity.what, sizeof identity.what, "block.0");
  set_name(identity.phase, sizeof identity.phase, "forward");
  recorder.on_finished({.group = "dp:0",
                        .channel = "gather",
                        .group_size = 2,
                        .identity = identity,
                        .enqueued_ns = 100,
                        .started_ns = 130,
                        .finished_ns = 200,
                        .waited_ns = 60});
}

void run_step(TraceRecorder& recorder, std::int64_t step) {
  recorder.begin_step(step);
  recorder.begin_data();
  recorder.end();
  for (const Instruction& instruction : program().instructions) {
    recorder.begin(program(), instruction);
    if (instruction.op == OpCode::kHeadLoss) recorder.enter(TraceClass::kCompute);
    recorder.end();
  }
  finish_call(recorder, step);
  recorder.end_window();
}

std::vector<std::string> texts(const std::vector<TraceSpan>& spans) {
  std::vector<std::string> out;
  for (const TraceSpan& span : spans)
    out.push_back(std::string(name_of(span.stream)) + " " + std::string(name_of(span.trace_class)) + ": " + span.name);
  return out;
}

TEST(TraceRecorder, PutsEverySpanInItsClass) {
  TraceRecorder recorder({.first = 7, .last = 7});
  run_step(recorder, 7);
  const std::vector<TraceSpan> spans = recorder.take();
  EXPECT_EQ(texts(spans), (std::vector<std::string>{
                              "compute step: step 7", "compute data: load batch", "compute wait: wait block.0",
                              "compute compute: forward block.0", "compute wait: wait tokens",
                              "compute compute: forward backward head", "gather communication: all_gather block.0"}));
  for (std::size_t i = 2; i < 6; ++i) EXPECT_LE(spans[i - 1].end_ns, spans[i].begin_ns);
  EXPECT_EQ(spans[4].end_ns, spans[5].begin_ns);
  EXPECT_LE(spans[0].begin_ns, spans[1].begin_ns);
  EXPECT_GE(spans[0].end_ns, spans[5].end_ns);
  EXPECT_EQ(spans[3].what, "block.0");
  EXPECT_EQ(spans[3].micro_batch, 0);
  EXPECT_EQ(spans[3].step, 7);
  EXPECT_EQ(spans[6].call, (TracedCall{.op = CollectiveOp::kAllGather,
                                       .group = "dp:0",
                                       .group_size = 2,
                                       .bytes = 12,
                                       .queued_ns = 30,
                                       .waited_ns = 60}));
}

TEST(TraceRecorder, RecordsTheStepsOfItsRangeAndTheFirstAttemptOfEach) {
  TraceRecorder recorder({.first = 2, .last = 3});
  std::vector<bool> reached, complete;
  for (const std::int64_t step : {1, 2, 2, 3, 3, 4}) {
    run_step(recorder, step);
    reached.push_back(recorder.reached());
    complete.push_back(recorder.complete());
  }
  EXPECT_EQ(reached, (std::vector<bool>{false, true, true, true, true, true}));
  EXPECT_EQ(complete, (std::vector<bool>{false, false, false, true, true, true}));
  std::vector<std::string> windows;
  for (const TraceSpan& span : recorder.take()) {
    if (span.trace_class == TraceClass::kWindow) windows.push_back(span.name);
  }
  EXPECT_EQ(windows, (std::vector<std::string>{"step 2", "step 3"}));
}

TEST(TraceRecorder, RecordsEvaluationsBetweenTheSteps) {
  TraceRecorder recorder({.first = 2, .last = 3});
  for (const std::int64_t step : {0, 1, 2, 3}) {
    if (step > 0) run_step(recorder, step);
    recorder.begin_evaluation(step);
    recorder.end_window();
  }
  std::vector<std::string> windows;
  for (const TraceSpan& span : recorder.take()) {
    if (span.trace_class == TraceClass::kWindow) windows.push_back(span.name);
  }
  EXPECT_EQ(windows, (std::vector<std::string>{"step 2", "evaluation after step 2", "step 3"}));
}

TEST(TraceRecorder, LeavesOutWholeStepsWhereThereIsNoRoom) {
  TraceRecorder recorder({.first = 1, .last = 9}, 10);  // a step has 7 spans
  for (std::int64_t step = 1; step <= 9; ++step) run_step(recorder, step);
  EXPECT_TRUE(recorder.complete());
  EXPECT_EQ(recorder.num_dropped(), 7);
  EXPECT_EQ(recorder.take().size(), 14U);
}

TEST(TraceRecorder, EndsAWindowThatIsOpenWhenItsSpansAreTaken) {
  TraceRecorder recorder({.first = 1, .last = 9});
  recorder.begin_step(1);
  EXPECT_TRUE(recorder.wants_calls());
  const std::vector<TraceSpan> spans = recorder.take();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_GE(spans[0].end_ns, spans[0].begin_ns);
  EXPECT_FALSE(recorder.wants_calls());
}

}  // namespace
}  // namespace tessera
