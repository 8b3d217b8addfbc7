#include "runtime/train/trace_analysis.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TraceSpan span(TraceClass trace_class, std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
  return {.trace_class = trace_class, .step = step, .begin_ns = begin, .end_ns = end};
}

TraceSpan call(CollectiveOp op, const std::string& phase, std::int64_t begin, std::int64_t end,
               std::int64_t waited = 0) {
  TraceSpan span = {
      .trace_class = TraceClass::kCommunication, .phase = phase, .step = 1, .begin_ns = begin, .end_ns = end};
  span.call = {.op = op, .bytes = 10, .waited_ns = waited};
  return span;
}

// A step of 200 ms, communication of 85.53 ms together, 13.08 % of it behind compute: 11.187324 ms, so 74.342676 are exposed.
TEST(TraceAnalysis, ReproducesAKnownShareOfOverlap) {
  constexpr std::int64_t communication = 85'530'000, overlapped = 11'187'324, compute_end = 100'000'000;
  constexpr std::int64_t begin = compute_end - overlapped, end = begin + communication;
  const std::vector<StepTimes> steps = analyse({
      span(TraceClass::kWindow, 0, 200'000'000),
      span(TraceClass::kCompute, 0, 60'000'000),
      span(TraceClass::kCompute, 60'000'000, compute_end),
      call(CollectiveOp::kAllGather, "backward", begin, begin + 50'000'000),
      call(CollectiveOp::kAllGather, "backward", begin + 50'000'000, end),
      // On another stream at the same time: sums of durations would count it twice.
      call(CollectiveOp::kReduceScatter, "backward", begin + 20'000'000, end - 1'000'000),
  });
  ASSERT_EQ(steps.size(), 1U);
  const CommunicationTimes& times = steps[0].communication;
  EXPECT_EQ(times.union_ns, 85'530'000);
  EXPECT_EQ(times.overlapped_ns, 11'187'324);
  EXPECT_EQ(times.exposed_ns(), 74'342'676);
  EXPECT_EQ(steps[0].compute_ns, 100'000'000);
  EXPECT_EQ(steps[0].idle_ns, 200'000'000 - end);
}

TEST(TraceAnalysis, TellsWaitingForPeersFromMovingData) {
  const std::vector<StepTimes> steps = analyse({
      span(TraceClass::kWindow, 0, 100), call(CollectiveOp::kAllGather, "forward", 0, 30, 20),  // moves from 20 to 30
      call(CollectiveOp::kReduceScatter, "backward", 10, 40, 25),                               // moves from 35 to 40
  });
  EXPECT_EQ(steps[0].communication.union_ns, 40);
  EXPECT_EQ(steps[0].communication.moving_ns, 15);
  EXPECT_EQ(steps[0].communication.waiting_ns(), 25);
  EXPECT_EQ(steps[0].find(CollectiveOp::kAllGather, "forward")->waiting_ns(), 20);
  EXPECT_EQ(steps[0].find(CollectiveOp::kReduceScatter, "backward")->waiting_ns(), 25);
}

TEST(TraceAnalysis, CountsEachOpAndPhaseApart) {
  const std::vector<StepTimes> steps = analyse({
      span(TraceClass::kWindow, 0, 100),
      span(TraceClass::kCompute, 50, 60),
      call(CollectiveOp::kAllGather, "forward", 0, 10),
      call(CollectiveOp::kAllGather, "backward", 40, 50),  // ends where the compute begins: no overlap
      call(CollectiveOp::kAllGather, "backward", 55, 70),
  });
  const CommunicationTimes* backward = steps[0].find(CollectiveOp::kAllGather, "backward");
  EXPECT_EQ(*backward,
            (CommunicationTimes{.num_calls = 2, .bytes = 20, .union_ns = 25, .overlapped_ns = 5, .moving_ns = 25}));
  EXPECT_EQ(steps[0].find(CollectiveOp::kAllGather, "forward")->num_calls, 1);
  EXPECT_EQ(steps[0].find(CollectiveOp::kAllReduce, "forward"), nullptr);
}

TEST(TraceAnalysis, OfTheHostsThreadKeepsWaitsOutOfCompute) {
  const std::vector<StepTimes> steps = analyse({
      span(TraceClass::kWindow, 0, 100),
      span(TraceClass::kData, 0, 5),
      span(TraceClass::kHost, 5, 10),
      span(TraceClass::kWait, 10, 40),
      span(TraceClass::kCompute, 40, 90),
      call(CollectiveOp::kAllGather, "forward", 12, 38),
  });
  EXPECT_EQ(steps[0].data_ns, 5);
  EXPECT_EQ(steps[0].host_ns, 5);
  EXPECT_EQ(steps[0].wait_ns, 30);
  EXPECT_EQ(steps[0].compute_ns, 50);
  EXPECT_EQ(steps[0].idle_ns, 100 - 5 - 26 - 50);
  EXPECT_EQ(steps[0].communication.overlapped_ns, 0);
}

TEST(TraceAnalysis, LeavesEvaluationsOutAndAddsSteps) {
  TraceSpan evaluation = span(TraceClass::kWindow, 100, 900, 1);
  evaluation.phase = "evaluate";
  const std::vector<StepTimes> steps =
      analyse({span(TraceClass::kWindow, 0, 100, 1), evaluation, span(TraceClass::kWindow, 1000, 1300, 2),
               call(CollectiveOp::kAllGather, "forward", 0, 10)});
  ASSERT_EQ(steps.size(), 2U);
  StepTimes sum;
  for (const StepTimes& step : steps) sum += step;
  EXPECT_EQ(sum.step_ns, 400);
  EXPECT_EQ(sum.find(CollectiveOp::kAllGather, "forward")->num_calls, 1);
}

}  // namespace
}  // namespace tessera
