#include "fsdp/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "fsdp/units.h"
#include "tests/support/tiny_model.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

StepProgram training(int num_blocks, const std::string& wrap, const ScheduleOptions& options) {
  const ModelSpec model = test::tiny_model(num_blocks);
  return build_training_program(model, make_units(model, wrap), options);
}

TEST(Schedule, BackwardPreIsThisList) {
  const StepProgram program = training(2, "block", {});
  EXPECT_EQ(program.texts(), (Texts{"agree tokens",
                                    "unshard root",
                                    "wait root",
                                    "unshard block.0",
                                    "forward embedding",
                                    "wait block.0",
                                    "unshard block.1",
                                    "forward block.0",
                                    "reshard block.0",
                                    "wait block.1",
                                    "forward block.1",
                                    "reshard block.1",
                                    "unshard block.1",
                                    "open gradient root",
                                    "forward backward head",
                                    "wait block.1",
                                    "unshard block.0",
                                    "open gradient block.1",
                                    "backward block.1",
                                    "reshard block.1",
                                    "reduce block.1",
                                    "wait block.0",
                                    "open gradient block.0",
                                    "backward block.0",
                                    "reshard block.0",
                                    "wait reduce block.1",
                                    "reduce block.0",
                                    "backward embedding",
                                    "reshard root",
                                    "wait reduce block.0",
                                    "reduce root",
                                    "wait reduce root",
                                    "agree norm, finite, stop",
                                    "update"}));
}

TEST(Schedule, BackwardPostIssuesTheNextGatherAfterTheBackwardAndBeforeTheReduce) {
  const StepProgram program =
      training(2, "block", {.backward_prefetch = BackwardPrefetch::kPost, .forward_prefetch_depth = 0});
  EXPECT_EQ(program.texts(), (Texts{"agree tokens",
                                    "unshard root",
                                    "wait root",
                                    "forward embedding",
                                    "unshard block.0",
                                    "wait block.0",
                                    "forward block.0",
                                    "reshard block.0",
                                    "unshard block.1",
                                    "wait block.1",
                                    "forward block.1",
                                    "reshard block.1",
                                    "open gradient root",
                                    "forward backward head",
                                    "unshard block.1",
                                    "wait block.1",
                                    "open gradient block.1",
                                    "backward block.1",
                                    "unshard block.0",
                                    "reshard block.1",
                                    "reduce block.1",
                                    "wait block.0",
                                    "open gradient block.0",
                                    "backward block.0",
                                    "reshard block.0",
                                    "wait reduce block.1",
                                    "reduce block.0",
                                    "backward embedding",
                                    "reshard root",
                                    "wait reduce block.0",
                                    "reduce root",
                                    "wait reduce root",
                                    "agree norm, finite, stop",
                                    "update"}));
}

TEST(Schedule, WithoutPrefetchEveryGatherIsWaitedForAtOnce) {
  const StepProgram program =
      training(4, "block", {.backward_prefetch = BackwardPrefetch::kNone, .forward_prefetch_depth = 0});
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    if (program.instructions[n].op != OpCode::kUnshard) continue;
    ASSERT_EQ(program.instructions[n + 1].op, OpCode::kWaitUnshard) << n;
    EXPECT_EQ(program.instructions[n + 1].unit, program.instructions[n].unit);
  }
}

// 13 units forward; the 12 blocks again in backward; one reduce_scatter per unit.
TEST(Schedule, TwelveBlocksMake25GathersAnd13ReducesUnderEveryPrefetchPolicyAndLimit) {
  for (const BackwardPrefetch prefetch : {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
    for (const int limit : {1, 2, 5}) {
      for (const int depth : {0, 1, 3}) {
        const StepProgram program = training(
            12, "block",
            {.backward_prefetch = prefetch, .forward_prefetch_depth = depth, .max_inflight_all_gathers = limit});
        EXPECT_EQ(program.count(OpCode::kUnshard), 25);
        EXPECT_EQ(program.count(OpCode::kReduce), 13);
      }
    }
  }
}

TEST(Schedule, RootWrapMakesOneGatherAndOneReduce) {
  const StepProgram program = training(12, "root", {});
  EXPECT_EQ(program.count(OpCode::kUnshard), 1);
  EXPECT_EQ(program.count(OpCode::kReduce), 1);
}

TEST(Schedule, WithoutReshardAfterForwardEveryUnitIsGatheredOnce) {
  const StepProgram program = training(12, "block", {.full_parameters = FullParameters::kMicroBatch});
  EXPECT_EQ(program.count(OpCode::kUnshard), 13);
  EXPECT_EQ(program.count(OpCode::kReduce), 13);
}

TEST(Schedule, BlocksPerUnitShareOneGather) {
  const ModelSpec model = test::tiny_model(5);
  const std::vector<UnitSpec> units = make_units(model, "2");
  ASSERT_EQ(units.size(), 4U);
  EXPECT_EQ(units[1].name, "blocks.0-1");
  EXPECT_EQ(units[3].name, "block.4");
  const StepProgram program = build_training_program(model, units, {});
  EXPECT_EQ(program.count(OpCode::kUnshard), 4 + 3);
  EXPECT_EQ(program.count(OpCode::kReduce), 4);
}

TEST(Schedule, GathersInFlightReachTheLimitAndNeverExceedIt) {
  for (const int limit : {1, 2, 3}) {
    const StepProgram program = training(8, "block", {.forward_prefetch_depth = 6, .max_inflight_all_gathers = limit});
    int in_flight = 0;
    int most = 0;
    for (const Instruction& i : program.instructions) {
      if (i.op == OpCode::kUnshard) most = std::max(most, ++in_flight);
      if (i.op == OpCode::kWaitUnshard) --in_flight;
    }
    EXPECT_EQ(in_flight, 0);
    EXPECT_EQ(most, limit);
  }
}

// Lanes are joined as a binary counter carries: after lane l, one join for each trailing one of l.
TEST(Schedule, LanesAreJoinedNeighbourByNeighbour) {
  const StepProgram program = training(1, "block", {.num_micro_batches = 8, .micro_batches_per_lane = 2});
  std::vector<int> joins;  // of block.0, by lane
  int micro = -1;
  for (const Instruction& i : program.instructions) {
    if (i.op == OpCode::kBackward && i.segment == 1) micro = i.micro_batch;
    if (i.op == OpCode::kOpenGradient && i.unit == 1) joins.push_back(0);
    if (i.op == OpCode::kMergeLanes && i.unit == 1) {
      EXPECT_EQ(micro % 2, 1) << "a lane is joined only after its last micro-batch";
      ++joins.back();
    }
  }
  EXPECT_EQ(joins, (std::vector<int>{0, 1, 0, 2}));
  EXPECT_EQ(program.count(OpCode::kReduce), 2) << "reduce: once";
}

TEST(Schedule, ALanesFirstMicroBatchAssignsAndLaterOnesAdd) {
  const StepProgram program = training(1, "block", {.num_micro_batches = 6, .micro_batches_per_lane = 3});
  for (const Instruction& i : program.instructions) {
    if (i.op == OpCode::kBackward || i.op == OpCode::kHeadLoss) {
      EXPECT_EQ(i.accumulate, i.micro_batch % 3 != 0) << program.text(i) << i.micro_batch;
    }
  }
  EXPECT_EQ(program.count(OpCode::kOpenGradient), 2 * 2);  // units × lanes
}

TEST(Schedule, EveryUnitIsFullWhereItIsUsedAndShardedAtTheEnd) {
  for (const std::string wrap : {"block", "root", "3"}) {
    for (const bool reshard : {true, false}) {
      const ModelSpec model = test::tiny_model(7);
      const std::vector<UnitSpec> units = make_units(model, wrap);
      const StepProgram program = build_training_program(
          model, units, {.num_micro_batches = 2, .micro_batches_per_lane = 1, .full_parameters = reshard ? FullParameters::kSegment : FullParameters::kMicroBatch});
      std::map<int, std::size_t> unit_of;
      for (std::size_t u = 0; u < units.size(); ++u) {
        for (const int s : units[u].segments) unit_of[s] = u;
      }
      std::vector<char> full(units.size(), 0);
      for (const Instruction& i : program.instructions) {
        if (i.op == OpCode::kWaitUnshard) full[static_cast<std::size_t>(i.unit)] = 1;
        if (i.op == OpCode::kReshard) full[static_cast<std::size_t>(i.unit)] = 0;
        if (i.segment >= 0) {
          EXPECT_TRUE(full[unit_of[i.segment]]) << program.text(i);
        }
      }
      for (const char f : full) EXPECT_FALSE(f);
    }
  }
}

TEST(Schedule, WaitsPointBackwards) {
  const StepProgram program = training(5, "block", {.num_micro_batches = 4, .micro_batches_per_lane = 2});
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    for (const int wait : program.instructions[n].waits) EXPECT_LT(wait, static_cast<int>(n));
  }
}

TEST(Schedule, EvaluationGathersEachUnitOnceAndReducesNothing) {
  const ModelSpec model = test::tiny_model(2);
  const StepProgram program = build_evaluation_program(model, make_units(model, "block"), {});
  EXPECT_EQ(program.texts(),
            (Texts{"unshard root", "wait root", "unshard block.0", "evaluate embedding", "wait block.0",
                   "unshard block.1", "evaluate block.0", "reshard block.0", "wait block.1", "evaluate block.1",
                   "reshard block.1", "evaluate head", "reshard root", "agree loss"}));
}

TEST(Schedule, ThePrintedListNamesCollectiveGroupAndStream) {
  const std::string text = training(1, "block", {.title = "step program"}).str();
  EXPECT_NE(text.find("   1 unshard root                              all_gather     dp:0     gather"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tessera
