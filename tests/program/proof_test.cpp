// Whole jobs: what is proven, what is no job, and how large one may be.
#include "runtime/program/proof.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/program/proof_jobs.h"

namespace tessera {
namespace {

using test::groups_of;
using test::training;

// 5 all_gathers (root, and both blocks forward and backward) and 3 reduce_scatters over dp, 2 agreements over the world.
TEST(Proof, TrainingProgramsOfAnyNumberOfRanksAreProven) {
  const StepProgram program = training(2);
  for (const int num_ranks : {2, 4, 4096}) {
    const ProofResult result = prove({{ProgramClass{&program, test::iota(num_ranks)}}}, groups_of({.dp = num_ranks}));
    EXPECT_TRUE(result.ok());
    EXPECT_EQ(result.text, fmt::format("{} ranks match; no deadlock (1 class, 4 communicators, 10 calls)", num_ranks));
    EXPECT_TRUE(result.counterexample.empty());
  }
  EXPECT_EQ(prove({{ProgramClass{&program, {0}}}}, groups_of({})).text,
            "1 rank matches; no deadlock (1 class, 4 communicators, 10 calls)");
}

TEST(Proof, EveryPolicyOfTheBuilderIsProven) {
  for (const BackwardPrefetch prefetch : {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
    for (const int depth : {0, 1, 3}) {
      for (const FullParameters life : {FullParameters::kSegment, FullParameters::kMicroBatch, FullParameters::kStep}) {
        for (const bool every : {false, true}) {
          const StepProgram program = training(6, {.num_micro_batches = 4,
                                                   .micro_batches_per_lane = 2,
                                                   .backward_prefetch = prefetch,
                                                   .forward_prefetch_depth = depth,
                                                   .full_parameters = life,
                                                   .reduce_every_micro_batch = every,
                                                   .shard_group = "shard:0",
                                                   .replica_group = "replica:0"});
          EXPECT_TRUE(prove({{ProgramClass{&program, test::iota(6)}}}, groups_of({.dp = 6, .shard_size = 2})).ok());
        }
      }
    }
  }
}

TEST(Proof, AProgramThatGathersNothingIsProven) {
  const StepProgram program =
      training(2, {.full_parameters = FullParameters::kAlways, .shard_group = "", .replica_group = "dp:0"});
  EXPECT_EQ(prove({{ProgramClass{&program, test::iota(4)}}}, groups_of({.dp = 4})).text,
            "4 ranks match; no deadlock (1 class, 3 communicators, 5 calls)");
}

TEST(Proof, EvaluationProgramsAreProven) {
  const ModelSpec model = test::tiny_model(2);
  const StepProgram program = build_evaluation_program(model, make_units(model, "block"), {});
  EXPECT_EQ(prove({{ProgramClass{&program, test::iota(4)}}}, groups_of({.dp = 4})).text,
            "4 ranks match; no deadlock (1 class, 2 communicators, 4 calls)");
}

// dp 2 × tp 2: ranks 0, 2 are dp:0 and ranks 1, 3 dp:1, each with 8 calls; the world has 2.
TEST(Proof, ARankCallsOnItsOwnGroupOfTheAxisThatItsProgramNames) {
  const StepProgram program = training(2);
  const ProofResult result = prove({{ProgramClass{&program, test::iota(4)}}}, groups_of({.dp = 2, .tp = 2}));
  EXPECT_EQ(result.text, "4 ranks match; no deadlock (1 class, 6 communicators, 18 calls)");
  EXPECT_EQ(result.num_ranks, 4);
  EXPECT_EQ(result.num_classes, 1);
  EXPECT_EQ(result.num_communicators, 6);
  EXPECT_EQ(result.num_calls, 18);
}

// 2 shard groups gather 5 times and scatter 3 times, 4 replica groups add 3 times, the world agrees twice.
TEST(Proof, ShardAndReplicaGroupsAreProven) {
  const StepProgram program = training(2, {.shard_group = "shard:0", .replica_group = "replica:0"});
  EXPECT_EQ(prove({{ProgramClass{&program, test::iota(8)}}}, groups_of({.dp = 8, .shard_size = 4})).text,
            "8 ranks match; no deadlock (1 class, 10 communicators, 30 calls)");
}

// The step of a large job: 64 × (65 + 64) all_gathers and 65 reduce_scatters in each of 512 shard groups, 65 all_reduces in each of 8 replica
// groups, 2 agreements. (The time limit of the test guards what it costs.)
TEST(Proof, ThousandsOfRanksWithLongProgramsAreProven) {
  ScheduleOptions options{
      .num_micro_batches = 64, .micro_batches_per_lane = 64, .shard_group = "shard:0", .replica_group = "replica:0"};
  const StepProgram program = training(64, options);
  options.replica_group = "replica:1";
  const StepProgram neighbours = training(64, options);
  const ProofResult result =
      prove({{ProgramClass{&program, test::iota(2048, 0, 2)}, ProgramClass{&neighbours, test::iota(2048, 1, 2)}}},
            groups_of({.dp = 4096, .shard_size = 8}));
  EXPECT_EQ(result.text, "4096 ranks match; no deadlock (2 classes, 1034 communicators, 4260874 calls)");
}

// What the message of the InternalError is, after "proof: ".
std::string refusal(std::vector<ProgramClass> classes, std::vector<ProofGroup> groups) {
  try {
    prove(classes, groups);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Proof, RefusesRanksThatAreNotInOneClass) {
  const StepProgram program = training(1);
  const std::vector<ProofGroup> groups = groups_of({.dp = 4});
  EXPECT_EQ(refusal({{&program, {0, 1}}, {&program, {3}}}, groups), "proof: rank 2 is in no class");
  EXPECT_EQ(refusal({{&program, {0, 1, 2}}}, groups), "proof: rank 3, a member of world, is in no class");
  EXPECT_EQ(refusal({{&program, {0, 1, 2}}, {&program, {2}}}, groups), "proof: rank 2 is in two classes");
  EXPECT_EQ(refusal({{&program, {}}}, groups), "proof: a class has a program and ranks");
  EXPECT_EQ(refusal({{nullptr, {0, 1, 2, 3}}}, groups), "proof: a class has a program and ranks");
}

TEST(Proof, RefusesRanksThatAreNotInOneGroupOfAnAxisTheyCallOn) {
  const StepProgram program = training(1);
  EXPECT_EQ(refusal({{&program, {0, 1, 2}}}, {{"world", {0, 1, 2}}, {"dp:0", {0, 1}}}),
            "proof: rank 2 calls on dp, and is in no group of it");
  EXPECT_EQ(refusal({{&program, {0, 1, 2}}}, {{"world", {0, 1, 2}}, {"dp:0", {0, 1}}, {"dp:1", {1, 2}}}),
            "proof: rank 1 is in dp:0 and in dp:1");
  EXPECT_EQ(refusal({{&program, {1, 0}}}, {{"world", {0, 1}}, {"dp:0", {0}}, {"dp:1", {1}}}),
            "proof: rank 1 calls on dp:0, of which it is no member");
  EXPECT_EQ(refusal({{&program, {0}}}, {{"world", {0}}}), "proof: rank 0 calls on dp:0, of which it is no member");
}

TEST(Proof, RefusesWaitsThatDoNotPointBackwards) {
  for (const int wait : {2, 3, 40, -1}) {
    const StepProgram program = test::by_hand(
        {test::unshard(0), test::wait_unshard(0, 0), test::reduce_gradient(0, {wait}), test::wait_reduce(0, 2)});
    EXPECT_EQ(
        refusal({{&program, {0}}}, groups_of({})),
        fmt::format("proof: instruction 2 (reduce root) waits for instruction {}, which is no earlier one", wait));
  }
}

TEST(Proof, RefusesUnitsThatAProgramHasNot) {
  const StepProgram program = test::by_hand({test::unshard(3)});
  EXPECT_EQ(refusal({{&program, {0}}}, groups_of({})),
            "proof: instruction 0 names a unit or a segment that its program has not");
}

}  // namespace
}  // namespace tessera
