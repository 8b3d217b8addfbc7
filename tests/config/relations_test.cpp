// What keys require of each other, with and without a number of ranks.
#include "runtime/config/relations.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

TEST(Relations, OfTheModel) {
  EXPECT_EQ(
      problems_of(model_t_with("hidden_size: 32", "hidden_size: 30")),
      Lines{
          "job.yaml:6: model.hidden_size: 30 is not a multiple of num_heads 4; hint: 28 or 32, or set model.head_dim"});
  EXPECT_EQ(problems_of(model_t_with("hidden_size: 32", "hidden_size: 30\n  head_dim: 8")), Lines{});
  EXPECT_EQ(problems_of(model_t_with("num_heads: 4", "num_heads: 4\n  num_kv_heads: 3")),
            Lines{"job.yaml:6: model.num_kv_heads: 3 does not divide num_heads 4"});
  EXPECT_EQ(problems_of(model_t_with("num_heads: 4", "num_heads: 4\n  head_dim: 7\n  positions: rope")),
            Lines{"job.yaml:6: model.head_dim: 7 is odd, but positions rope rotates pairs of features"});
  EXPECT_EQ(problems_of(model_t_with("hidden_size: 32", "hidden_size: 36\n  positions: rope")),
            Lines{"job.yaml:6: model.head_dim: 9 is odd, but positions rope rotates pairs of features"});
}

// Each key is in its range, and the product is not.
TEST(Relations, OfSizesWhoseProductNoMachineHolds) {
  const std::string heads = model_t_with("num_heads: 4\n  hidden_size: 32\n  seq_len: 16",
                                         "num_heads: 65536\n  head_dim: 65536\n  hidden_size: 1048576\n  seq_len: 1");
  EXPECT_EQ(
      problems_of(heads),
      Lines{"job.yaml:5: model.num_heads: 65536 × head_dim 65536 × hidden_size 1048576 × num_layers 2 make 5.8e+17 "
            "bytes of parameters, gradients and moments, expected at most 2.9e+17"});
  const std::string wide = model_t_with(
      "num_layers: 2\n  num_heads: 4\n  hidden_size: 32",
      "num_layers: 10000\n  num_heads: 1\n  head_dim: 8\n  intermediate_size: 4194304\n  hidden_size: 1048576");
  const Lines lines = problems_of(wide);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(
      lines[0].starts_with("job.yaml:8: model.hidden_size: 1048576 × intermediate_size 4194304 × num_layers "
                           "10000 make "))
      << lines[0];
  const std::string long_batch = model_t_with("hidden_size: 32\n  seq_len: 16", "hidden_size: 65536\n  seq_len: 16384");
  EXPECT_EQ(problems_of(long_batch), Lines{}) << "large, and within 64 bits";
}

TEST(Relations, OfStretchedRotations) {
  const auto problem = [](const std::string& keys) {
    const Lines lines = problems_of(model_t_with("vocab_size: 64", "vocab_size: 64\n  " + keys));
    return lines.empty() ? "" : lines[0];
  };
  EXPECT_EQ(problem("positions: rope\n  rope_scaling: linear\n  rope_factor: 2"), "");
  EXPECT_EQ(problem("positions: rope\n  rope_scaling: llama3\n  rope_factor: 8"), "");
  EXPECT_EQ(problem("positions: rope\n  rope_scaling: linear"),
            "job.yaml:10: model.rope_scaling: linear with rope_factor 1 stretches nothing; hint: model.rope_factor: a "
            "number above 1");
  EXPECT_EQ(problem("positions: rope\n  rope_scaling: llama3\n  rope_factor: 8\n  rope_high_freq_factor: 1"),
            "job.yaml:12: model.rope_high_freq_factor: 1 is not above rope_low_freq_factor 1");
  EXPECT_EQ(problem("positions: rope\n  rope_factor: 2"),
            "job.yaml:10: model.rope_factor: has no effect with model.rope_scaling none; hint: model.rope_scaling: "
            "linear or llama3");
  EXPECT_EQ(problem("rope_scaling: linear"),
            "job.yaml:9: model.rope_scaling: has no effect with model.positions learned; hint: model.positions: rope");
  EXPECT_EQ(problem("positions: rope\n  rope_scaling: {factor: 8}").substr(0, 31), "job.yaml:10: model.rope_scaling");
}

TEST(Relations, OfTheTracedSteps) {
  const auto problem = [](const std::string& steps) {
    const Lines lines = problems_of(model_t_and("trace: {steps: " + steps + "}\n"));
    return lines.empty() ? "" : lines[0];
  };
  const std::string key = "job.yaml:18: trace.steps";
  EXPECT_EQ(problem("[2, 3]"), "");
  EXPECT_EQ(problem("[2, 2]"), "");
  EXPECT_EQ(problem("[20, 30]"), "") << "beyond the end of the run";
  EXPECT_EQ(problem("[5, 3]"), key + ": the first step, 5, is after the last, 3; hint: [3, 5]");
  EXPECT_EQ(problem("[0, 2]"), key + "[0]: found 0, expected an integer from 1 to 1000000000000");
  EXPECT_EQ(problem("[1, 2.5]"), key + "[1]: found 2.5, expected an integer from 1 to 1000000000000");
  const std::string expected = ", expected [first, last], each an integer from 1 to 1000000000000";
  EXPECT_EQ(problem("[1]"), key + ": found a list of 1" + expected);
  EXPECT_EQ(problem("4"), key + ": found 4" + expected);
}

TEST(Relations, OfTheSchedule) {
  EXPECT_EQ(problems_of(model_t_and("schedule: {warmup_steps: 11}\n")),
            Lines{"job.yaml:18: schedule.warmup_steps: 11 is more than run.steps 10"});
  EXPECT_EQ(problems_of(model_t_and("schedule: {warmup_steps: 10}\n")), Lines{});
  EXPECT_EQ(problems_of(model_t_and("schedule: {name: linear, min_learning_rate: 0.002}\n")),
            Lines{"job.yaml:18: schedule.min_learning_rate: 0.002 is above optimizer.learning_rate 0.001"});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "epochs: 2") + "schedule: {name: cosine}\n"),
            Lines{"job.yaml:18: schedule.decay_steps: missing, schedule cosine needs it where run.steps is not set"});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "epochs: 2") + "schedule: {name: cosine, decay_steps: 8}\n"),
            Lines{});
}

TEST(Relations, OfTheOptimizer) {
  EXPECT_EQ(problems_of(model_t_with("learning_rate: 1e-3", "betas: [0.9, 1]")),
            Lines{"job.yaml:15: optimizer.betas[1]: found 1, expected a number of at least 0 and below 1"});
  EXPECT_EQ(problems_of(model_t_with("learning_rate: 1e-3", "betas: [0.9]")),
            Lines{"job.yaml:15: optimizer.betas: found a list of 1, expected a list of two numbers, each of at least 0 "
                  "and below 1"});
  EXPECT_EQ(problems_of(model_t_with("learning_rate: 1e-3", "groups: [{match: norm}]")),
            Lines{"job.yaml:15: optimizer.groups[0]: changes nothing, expected learning_rate, weight_decay or "
                  "frozen: true"});
  EXPECT_EQ(
      problems_of(model_t_with("learning_rate: 1e-3", "groups: [{match: norm, frozen: true, weight_decay: 0}]")),
      Lines{"job.yaml:15: optimizer.groups: [0] is frozen and has a learning_rate or weight_decay, expected one of "
            "both"});
  EXPECT_EQ(problems_of(model_t_with("learning_rate: 1e-3", "groups: [{match: norm, frozen: true}]")), Lines{});
  EXPECT_EQ(problems_of(model_t_with("learning_rate: 1e-3", "groups: [{weight_decay: 0}]")),
            Lines{"job.yaml:15: optimizer.groups[0].match: missing, expected text"});
  const Lines bad_expression =
      problems_of(model_t_with("learning_rate: 1e-3", "groups: [{match: \"(a\", weight_decay: 0}]"));
  ASSERT_EQ(bad_expression.size(), 1u);
  EXPECT_EQ(
      bad_expression[0].rfind("job.yaml:15: optimizer.groups[0].match: found (a, expected a regular expression (", 0),
      0u);
}

TEST(Relations, OfAnEvaluationThatNobodyGaveAnInterval) {
  const std::string hint = "has no effect without run.evaluate_every; hint: run.evaluate_every: N, or 0 for never";
  EXPECT_EQ(problems_of(model_t_with("train: [data/t.bin]", "train: [data/t.bin]\n  validation: [v.bin]")),
            Lines{"job.yaml:11: data.validation: " + hint});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "steps: 10\n  evaluate_batches: 3")),
            Lines{"job.yaml:3: run.evaluate_batches: " + hint});
  EXPECT_EQ(problems_of(model_t_with("train: [data/t.bin]", "train: [data/t.bin]\n  validation: [v.bin]"),
                        {"run.evaluate_every=0"}),
            Lines{})
      << "somebody said never";
}

TEST(Relations, OfEvaluationAndSampling) {
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "steps: 10\n  evaluate_every: 5\n  sample_every: 5")),
            (Lines{"job.yaml:3: run.evaluate_every: 5 needs data.validation, which is not set",
                   "job.yaml:4: run.sample_every: 5 needs data.tokenizer, which is not set; hint: data.tokenizer: "
                   "bytes, a *.model file or a tokenizer.json"}));
}

// Case A5, as far as the file alone tells.
TEST(Relations, OfTheBatch) {
  EXPECT_EQ(problems_of(model_t_with("micro_batch_size: 2", "micro_batch_size: 3")),
            Lines{"job.yaml:12: batch.global_batch_size: 8 is not a multiple of micro_batch_size 3; hint: 6 or 9"});
  EXPECT_EQ(problems_of(model_t_with("micro_batch_size: 2", "micro_batch_size: 0")),
            Lines{"job.yaml:13: batch.micro_batch_size: found 0, expected an integer from 1 to 2147483647"});
  EXPECT_EQ(problems_of(model_t_with("micro_batch_size: 2", "micro_batch_size: -2")),
            Lines{"job.yaml:13: batch.micro_batch_size: found -2, expected an integer from 1 to 2147483647"});
  EXPECT_EQ(
      problems_of(model_t_with("lanes: 4", "lanes: 8")),
      Lines{
          "job.yaml:12: batch.global_batch_size: 8 is not a multiple of lanes 8 × micro_batch_size 2 = 16; hint: 16"});
  EXPECT_EQ(
      problems_of(model_t_with("lanes: 4", "lanes: auto") + "mesh: {dp: 3}\n"),
      Lines{
          "job.yaml:12: batch.global_batch_size: 8 is not a multiple of dp 3 × micro_batch_size 2 = 6; hint: 6 or 12"});
  EXPECT_EQ(problems_of(model_t_and("mesh: {dp: 8}\n")),
            Lines{"job.yaml:17: reproducibility.lanes: 4 is less than dp 8; hint: dp values that fit: 1, 2, 4"});
}

JobConfig job_with(std::int64_t global, std::int64_t micro, AutoInt lanes = {}, AutoInt dp = {}) {
  JobConfig job = check_config_text(kModelT, "job.yaml").config;
  job.batch = {global, micro};
  job.reproducibility.lanes = lanes;
  job.mesh.dp = dp;
  return job;
}

std::string refusal(const JobConfig& job, std::int64_t world_size) {
  try {
    resolve(job, world_size);
  } catch (const ConfigError& error) {
    return error.line();
  }
  return "resolved";
}

TEST(Resolve, FillsEveryAuto) {
  // 64 sequences = 4 lanes × accumulation 8 × micro-batch 2; dp 2 holds two lanes per rank.
  const ResolvedBatch batch = resolve(job_with(64, 2, 4), 2);
  EXPECT_EQ(batch.dp, 2);
  EXPECT_EQ(batch.pp, 1);
  EXPECT_EQ(batch.tp, 1);
  EXPECT_EQ(batch.lanes, 4);
  EXPECT_EQ(batch.accumulation, 8);
  EXPECT_EQ(batch.lanes_per_rank, 2);
  EXPECT_EQ(batch.micro_batches_per_rank, 16);
}

TEST(Resolve, TakesDpForLanesWhereTheyAreAuto) {
  const ResolvedBatch batch = resolve(job_with(12, 2), 3);
  EXPECT_EQ(batch.dp, 3);
  EXPECT_EQ(batch.lanes, 3);
  EXPECT_EQ(batch.accumulation, 2);
  EXPECT_EQ(batch.micro_batches_per_rank, 2);
}

TEST(Resolve, DividesRanksByTheOtherAxes) {
  JobConfig job = job_with(8, 2);
  job.mesh.pp = 2;
  EXPECT_EQ(resolve(job, 8).dp, 4);
  EXPECT_EQ(refusal(job, 7), "mesh: world size 7 is not a multiple of pp 2 × tp 1 = 2");
  job.mesh.dp = 2;
  job.mesh.tp = 3;
  EXPECT_EQ(refusal(job, 8), "mesh: world size 8 != dp 2 × pp 2 × tp 3 = 12; hint: set mesh.dp: auto");
}

// Case A5.
TEST(Resolve, RefusesABatchThatDoesNotDivideNamingNumbersAndProduct) {
  EXPECT_EQ(refusal(job_with(6, 2), 2),
            "batch.global_batch_size: 6 is not a multiple of dp 2 × micro_batch_size 2 = 4; hint: 4 or 8");
  EXPECT_EQ(refusal(job_with(2, 1), 4),
            "batch.global_batch_size: 2 is not a multiple of dp 4 × micro_batch_size 1 = 4; hint: 4");
  EXPECT_EQ(refusal(job_with(4, 2, 4), 2),
            "batch.global_batch_size: 4 is not a multiple of lanes 4 × micro_batch_size 2 = 8; hint: 8");
}

TEST(Resolve, RefusesLanesThatDpDoesNotDivideByAPowerOfTwo) {
  EXPECT_EQ(refusal(job_with(8, 2, 4), 8),
            "reproducibility.lanes: 4 is less than dp 8; hint: dp values that fit: 1, 2, 4");
  EXPECT_EQ(refusal(job_with(12, 1, 6), 2),
            "reproducibility.lanes: 6 ÷ dp 2 is not a power of two; hint: dp values that fit: 3, 6");
  EXPECT_EQ(refusal(job_with(12, 1, 4), 3),
            "reproducibility.lanes: 4 ÷ dp 3 is not a power of two; hint: dp values that fit: 1, 2, 4");
  EXPECT_EQ(resolve(job_with(12, 1, 12), 3).lanes_per_rank, 4);
}

TEST(Resolve, ListsTheDpValuesThatFit) {
  EXPECT_EQ(dp_values_that_fit(job_with(24, 1, 24), 24), (std::vector<std::int64_t>{3, 6, 12, 24}));
  EXPECT_EQ(dp_values_that_fit(job_with(8, 1, 1), 1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(dp_values_that_fit(job_with(8, 2), 8), (std::vector<std::int64_t>{}));
}

}  // namespace
}  // namespace tessera::testing
