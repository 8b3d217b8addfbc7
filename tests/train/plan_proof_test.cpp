// The programs of a job are proven from the plan of any rank, and refuted where chaos makes one of them wrong.
#include "runtime/train/plan_proof.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

// Model T on four ranks, seen from one of them.
Plan plan_of(const JobConfig& config, int rank = 0) {
  const ResolvedBatch batch = resolve(config, 4);
  return make_plan(config, batch, make_mesh(config.fsdp, batch, 2), rank, 1);
}

TEST(PlanProof, EveryStrategyIsProvenFromThePlanOfAnyRank) {
  for (const std::string strategy : {"full_shard", "shard_grad_op", "hybrid_shard", "no_shard"}) {
    for (const std::string wrap : {"block", "root"}) {
      JobConfig config = test::model_t(1);
      config.fsdp.strategy = strategy;
      config.fsdp.wrap = wrap;
      for (const int rank : {0, 3}) {
        const Plan plan = plan_of(config, rank);
        for (const StepProgram* program : {&plan.program, &plan.evaluation_program, &plan.first_loss_program}) {
          const ProofResult proof = prove_program(plan, *program);
          EXPECT_TRUE(proof.ok()) << strategy << wrap << rank << proof.text;
          EXPECT_EQ(proof.num_ranks, 4);
        }
      }
    }
  }
}

TEST(PlanProof, ASwappedPairIsRefutedByTheFirstCallThatDiffers) {
  const Plan plan = plan_of(test::model_t(1));
  const FaultyStep faulty = prove_faulty_step(plan, {{.rank = 1, .step = 5, .fault = "swap_collectives"}});
  EXPECT_EQ(faulty.step, 5);
  EXPECT_EQ(faulty.proof.text, "4 ranks do not match");
  EXPECT_EQ(
      faulty.proof.counterexample,
      (std::vector<std::string>{"call 1 of dp:0/gather: ranks 0, 2, 3 make all_gather block.0 (forward), rank 1 makes "
                                "all_gather block.1 (forward)"}));
}

TEST(PlanProof, ACallLeftOutOfAHybridJobIsRefutedInItsOwnGroup) {
  JobConfig config = test::model_t(1);
  config.fsdp.strategy = "hybrid_shard";
  const FaultyStep faulty =
      prove_faulty_step(plan_of(config), {{.rank = 3, .step = 2, .fault = "skip_collective", .op = "reduce_scatter"}});
  EXPECT_EQ(faulty.step, 2);
  EXPECT_EQ(faulty.proof.counterexample,
            (std::vector<std::string>{
                "call 0 of shard:1/reduce: rank 2 makes reduce_scatter block.1 (backward), rank 3 makes "
                "reduce_scatter block.0 (backward)"}));
}

TEST(PlanProof, FaultsOfTheProcessAndOfTheCallsDataDoNotShowInTheList) {
  const Plan plan = plan_of(test::model_t(1));
  EXPECT_EQ(
      prove_faulty_step(plan, {{.rank = 1, .step = 5, .fault = "kill"}, {.rank = 0, .step = 2, .fault = "wrong_dtype"}})
          .step,
      0);
}

TEST(PlanProof, WhatCannotBeSwappedIsRefusedAsByTheJob) {
  JobConfig config = test::model_t(1);
  config.fsdp.strategy = "no_shard";
  EXPECT_THROW(prove_faulty_step(plan_of(config), {{.rank = 1, .step = 5, .fault = "swap_collectives"}}), ConfigError);
}

}  // namespace
}  // namespace tessera
