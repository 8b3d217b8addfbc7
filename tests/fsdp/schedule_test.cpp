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

TEST(Schedule, WithTwoUnitsAheadForwardIssuesBothBeforeItComputes) {
  const StepProgram program = training(3, "block", {.forward_prefetch_depth = 2, .max_inflight_all_gathers = 3});
  const Texts texts = program.texts();
  EXPECT_EQ(
      Texts(texts.begin(), texts.begin() + 16),
      (Texts{"agree tokens", "unshard root", "wait root", "unshard block.0", "unshard block.1", "forward embedding",
             "wait block.0", "unshard block.2", "forward block.0", "reshard block.0", "wait block.1", "forward block.1",
             "reshard block.1", "wait block.2", "forward block.2", "reshard block.2"}));
}

TEST(Schedule, ShardGradOpGathersOncePerStepAndReshardsAfterTheLastMicroBatch) {
  const StepProgram program = training(
      1, "block", {.num_micro_batches = 2, .micro_batches_per_lane = 2, .full_parameters = FullParameters::kStep});
  EXPECT_EQ(program.texts(), (Texts{"agree tokens",
                                    "unshard root",
                                    "wait root",
                                    "unshard block.0",
                                    "forward embedding",
                                    "wait block.0",
                                    "forward block.0",
                                    "open gradient root",
                                    "forward backward head",
                                    "open gradient block.0",
                                    "backward block.0",
                                    "backward embedding",
                                    "forward embedding",
                                    "forward block.0",
                                    "forward backward head",
                                    "backward block.0",
                                    "reshard block.0",
                                    "reduce block.0",
                                    "backward embedding",
                                    "reshard root",
                                    "wait reduce block.0",
                                    "reduce root",
                                    "wait reduce root",
                                    "agree norm, finite, stop",
                                    "update"}));
}

TEST(Schedule, FullShardWithoutReshardGathersOncePerMicroBatch) {
  const StepProgram program =
      training(12, "block",
               {.num_micro_batches = 4, .micro_batches_per_lane = 4, .full_parameters = FullParameters::kMicroBatch});
  EXPECT_EQ(program.count(OpCode::kUnshard), 4 * 13);
  EXPECT_EQ(program.count(OpCode::kReduce), 13);
}

TEST(Schedule, NoShardGathersNothingAndAddsGradientsOverAllRanks) {
  const StepProgram program =
      training(1, "block", {.full_parameters = FullParameters::kAlways, .shard_group = "", .replica_group = "dp:0"});
  EXPECT_EQ(program.texts(), (Texts{"agree tokens", "forward embedding", "forward block.0", "open gradient root",
                                    "forward backward head", "open gradient block.0", "backward block.0",
                                    "reduce replicas block.0", "backward embedding", "wait reduce block.0",
                                    "reduce replicas root", "wait reduce root", "agree norm, finite, stop", "update"}));
}

TEST(Schedule, HybridScattersAmongTheShardGroupThenAddsOverTheReplicas) {
  const StepProgram program = training(1, "block", {.shard_group = "shard:2", .replica_group = "replica:1"});
  Texts calls;
  for (const Instruction& i : program.instructions) {
    if (!i.group.empty()) calls.push_back(program.text(i) + " over " + i.group);
  }
  EXPECT_EQ(calls, (Texts{"agree tokens over world", "unshard root over shard:2", "unshard block.0 over shard:2",
                          "unshard block.0 over shard:2", "reduce block.0 over shard:2",
                          "reduce replicas block.0 over replica:1", "reduce root over shard:2",
                          "reduce replicas root over replica:1", "agree norm, finite, stop over world"}));
  for (const Instruction& i : program.instructions) {
    if (i.op == OpCode::kReduceReplicas) {
      EXPECT_TRUE(i.waits.empty()) << "its stream orders it after the reduce_scatter";
    }
    if (i.op != OpCode::kWaitReduce) continue;
    EXPECT_EQ(program.instructions[static_cast<std::size_t>(i.waits.at(0))].op, OpCode::kReduceReplicas);
  }
}

TEST(Schedule, EveryMicroBatchReducesTheLanesOfOneIndexThenAddsTheNextToTheShard) {
  const StepProgram program =
      training(1, "block", {.num_micro_batches = 4, .micro_batches_per_lane = 2, .reduce_every_micro_batch = true});
  Texts gradient;  // of block.0, with the micro-batch where there is one
  for (const Instruction& i : program.instructions) {
    if (i.unit != 1 && i.segment != 1) continue;
    if (i.phase != "backward" || i.op == OpCode::kUnshard || i.op == OpCode::kWaitUnshard || i.op == OpCode::kReshard)
      continue;
    gradient.push_back(program.text(i) + (i.op == OpCode::kBackward ? " " + std::to_string(i.micro_batch) : "") +
                       (i.accumulate ? " +=" : ""));
  }
  EXPECT_EQ(gradient, (Texts{"open gradient block.0", "backward block.0 0",  // lane 0
                             "open gradient block.0", "backward block.0 2",  // lane 1
                             "merge lanes block.0", "reduce block.0", "wait reduce block.0", "open gradient block.0",
                             "backward block.0 1", "open gradient block.0", "backward block.0 3", "merge lanes block.0",
                             "reduce block.0", "wait reduce block.0 +="}));
}

TEST(Schedule, AGradientOnItsWayIsWaitedForBeforeTheNextMicroBatchOpensIt) {
  const StepProgram program =
      training(2, "root", {.num_micro_batches = 2, .micro_batches_per_lane = 2, .reduce_every_micro_batch = true});
  Texts gradient;
  for (const Instruction& i : program.instructions) {
    if (i.op == OpCode::kOpenGradient || i.op == OpCode::kReduce || i.op == OpCode::kWaitReduce)
      gradient.push_back(program.text(i));
  }
  EXPECT_EQ(gradient, (Texts{"open gradient root", "reduce root", "wait reduce root", "open gradient root",
                             "reduce root", "wait reduce root"}));
}

TEST(Schedule, AFrozenUnitIsComputedThroughAndNeverReduced) {
  ModelSpec model = test::tiny_model(2);
  for (const int p : model.segments[1].parameters) model.parameters[static_cast<std::size_t>(p)].frozen = true;
  const std::vector<UnitSpec> units = make_units(model, "block");
  EXPECT_TRUE(units[1].frozen);
  EXPECT_FALSE(units[0].frozen || units[2].frozen);
  const StepProgram program =
      build_training_program(model, units, {.num_micro_batches = 2, .micro_batches_per_lane = 1});
  Texts of_unit;
  for (const Instruction& i : program.instructions) {
    if (i.unit == 1 && (i.phase == "backward" && i.op != OpCode::kUnshard && i.op != OpCode::kWaitUnshard))
      of_unit.push_back(program.text(i));
  }
  EXPECT_EQ(of_unit, (Texts{"open gradient block.0", "reshard block.0", "drop gradient block.0",
                            "open gradient block.0", "reshard block.0", "drop gradient block.0"}));
  EXPECT_EQ(program.count(OpCode::kReduce), 2);
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
    for (const FullParameters life : {FullParameters::kSegment, FullParameters::kMicroBatch, FullParameters::kStep}) {
      const ModelSpec model = test::tiny_model(7);
      const std::vector<UnitSpec> units = make_units(model, wrap);
      const StepProgram program = build_training_program(
          model, units, {.num_micro_batches = 2, .micro_batches_per_lane = 1, .full_parameters = life});
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

TEST(Schedule, EvaluationUnderShardGradOpGathersOncePerBatchAndUnderNoShardNever) {
  const ModelSpec model = test::tiny_model(3);
  const std::vector<UnitSpec> units = make_units(model, "block");
  const StepProgram once =
      build_evaluation_program(model, units, {.num_micro_batches = 3, .full_parameters = FullParameters::kStep});
  EXPECT_EQ(once.count(OpCode::kUnshard), 4);
  EXPECT_EQ(once.count(OpCode::kReshard), 4);
  const StepProgram never = build_evaluation_program(
      model, units,
      {.num_micro_batches = 3, .full_parameters = FullParameters::kAlways, .shard_group = "", .replica_group = "dp:0"});
  EXPECT_EQ(never.count(OpCode::kUnshard) + never.count(OpCode::kWaitUnshard) + never.count(OpCode::kReshard), 0);
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
