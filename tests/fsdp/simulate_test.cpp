// Orders and signs that must hold between policies; the numbers are those of an imagined device.
#include "fsdp/simulate.h"

#include <gtest/gtest.h>

#include "fsdp/ledger.h"
#include "fsdp/units.h"
#include "tests/support/tiny_model.h"

namespace tessera {
namespace {

constexpr ShardGroups two_shards() {
  return {.num_shards = 2};
}

struct Job {
  explicit Job(int num_blocks = 12, const std::string& wrap = "block", ScheduleOptions options = {})
      : model(test::tiny_model(num_blocks)) {
    for (std::size_t s = 1; s < model.segments.size(); ++s) model.segments[s].forward_flops = 1;
    units = make_units(model, wrap);
    program = build_training_program(model, units, options);
  }
  Simulation run(const DeviceModel& device) const { return simulate(program, model, units, two_shards(), device); }

  ModelSpec model;
  std::vector<UnitSpec> units;
  StepProgram program;
};

// A segment's forward takes a second, and so does a unit's gather (a shard of 32 elements) divided by `relative_speed`.
DeviceModel device(double relative_speed) {
  return {.flops_per_second = 1, .bytes_per_second = 32 * 4 * relative_speed, .call_seconds = 0, .issue_seconds = 1e-3};
}

TEST(Simulate, OneBlockIsThisStep) {
  const Job job(1, "block", {.forward_prefetch_depth = 0});
  DeviceModel slow = device(1);
  slow.issue_seconds = 0;
  slow.host_runs_ahead = false;
  const Simulation r = job.run(slow);
  // Root and block are gathered (1 + 1), the block runs (1); it is gathered again under the head's forward and backward (3), runs backward (2), and
  // is reduced (1) beside the embedding's backward, which takes nothing; so the root, whose reduce carries the table's lookup segment as well (32 + 32
  // elements received), follows it (2).
  EXPECT_DOUBLE_EQ(r.compute_seconds, 1 + 3 + 2);
  EXPECT_DOUBLE_EQ(r.gather_seconds, 3);
  EXPECT_DOUBLE_EQ(r.reduce_seconds, 1 + 2);
  EXPECT_DOUBLE_EQ(r.gathers_overlapped_seconds, 1);
  EXPECT_DOUBLE_EQ(r.exposed_seconds(), 1 + 1 + 1 + 2);
  EXPECT_DOUBLE_EQ(r.step_seconds, 1 + 1 + 1 + 3 + 2 + 1 + 2);
}

// A host that computes itself, as the CPU device's: what is issued before a backward overlaps it, what is issued after it does not.
TEST(Simulate, BackwardPreOverlapsPostAndNoneDoNot) {
  const auto run = [](BackwardPrefetch prefetch) {
    DeviceModel d = device(1);
    d.host_runs_ahead = false;
    return Job(12, "block", {.backward_prefetch = prefetch, .forward_prefetch_depth = 0}).run(d);
  };
  const Simulation pre = run(BackwardPrefetch::kPre), post = run(BackwardPrefetch::kPost),
                   none = run(BackwardPrefetch::kNone);
  EXPECT_GT(pre.gathers_overlapped_seconds, 0);
  EXPECT_EQ(post.gathers_overlapped_seconds, 0);
  EXPECT_EQ(none.gathers_overlapped_seconds, 0);
  EXPECT_LT(pre.step_seconds, post.step_seconds);
  EXPECT_LE(post.step_seconds, none.step_seconds);
  EXPECT_GT(pre.allocated_peak, none.allocated_peak) << "the prefetched unit lives beside the current one";
}

TEST(Simulate, TheRateLimitBoundsWhatIsReservedAndLeavesCallsAndWhatIsAllocated) {
  const Job job;
  EXPECT_EQ(job.program.count(OpCode::kUnshard), 25);
  EXPECT_EQ(job.program.count(OpCode::kReduce), 13);
  DeviceModel limited = device(0.7), unlimited = device(0.7);
  limited.rate_limit = 2;
  const Simulation with = job.run(limited), without = job.run(unlimited);
  EXPECT_NEAR(without.gather_seconds, with.gather_seconds, 1e-9) << "the same calls";
  EXPECT_GT(without.reserved_peak, with.reserved_peak);
  EXPECT_EQ(without.allocated_peak, with.allocated_peak);
  EXPECT_LE(without.step_seconds, with.step_seconds);
  EXPECT_GE(with.reserved_peak, with.allocated_peak) << "what is allocated is held";
}

// Gathers take longer than a forward and less than a backward: without the limit, those of the next micro-batch begin under the backward of this.
TEST(Simulate, WithoutTheRateLimitAStepOfSeveralMicroBatchesIsFaster) {
  const Job job(12, "block", {.num_micro_batches = 4, .micro_batches_per_lane = 4});
  DeviceModel limited = device(0.7);
  limited.rate_limit = 2;
  EXPECT_LT(job.run(device(0.7)).step_seconds, job.run(limited).step_seconds);
}

TEST(Simulate, ALargerLimitReservesMoreAndNeverTakesLonger) {
  const Job job;
  Simulation last;
  for (const int limit : {1, 2, 4, 8}) {
    DeviceModel d = device(0.7);
    d.rate_limit = limit;
    const Simulation now = job.run(d);
    if (limit > 1) {
      EXPECT_GE(now.reserved_peak, last.reserved_peak) << limit;
      EXPECT_LE(now.step_seconds, last.step_seconds) << limit;
    }
    last = now;
  }
}

TEST(Simulate, RootWrapTakesMoreMemoryInFewerCalls) {
  const Job block(12), root(12, "root");
  EXPECT_GT(root.run(device(1)).allocated_peak, block.run(device(1)).allocated_peak);
  // Where a call costs more than what it moves, one large gather beats 25 small ones.
  DeviceModel far = device(100);
  far.call_seconds = 5;
  EXPECT_LT(root.run(far).step_seconds, block.run(far).step_seconds);
}

TEST(Simulate, BusyTimesAddUp) {
  for (const bool ahead : {true, false}) {
    DeviceModel d = device(2);
    d.host_runs_ahead = ahead;
    const Simulation r = Job().run(d);
    EXPECT_LE(r.overlapped_seconds, r.communication_seconds);
    EXPECT_LE(r.communication_seconds, r.gather_seconds + r.reduce_seconds + 1e-9);
    EXPECT_LE(r.compute_seconds + r.exposed_seconds(), r.step_seconds + 1e-9)
        << "at any time one of them is busy, or the step waits for the host";
  }
}

}  // namespace
}  // namespace tessera
