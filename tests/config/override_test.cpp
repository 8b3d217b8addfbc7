// --set key=value: the rules of the file, without its lines.
#include <gtest/gtest.h>

#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

TEST(Override, ReplacesWhatTheFileSaysInOrder) {
  const ConfigResult result =
      check_config_text(kModelT, "job.yaml",
                        {"run.steps=5", "optimizer.learning_rate=6e-4", "run.steps=7", "mesh.dp=2", "run.name=\"007\"",
                         "recompute=none", " fsdp.wrap = root"});
  ASSERT_TRUE(result.problems.empty()) << result.problems[0].line_text();
  EXPECT_EQ(result.config.run.steps, 7);
  EXPECT_EQ(result.config.optimizer.learning_rate, 0.0006);
  EXPECT_EQ(result.config.mesh.dp, 2);
  EXPECT_EQ(result.config.run.name, "007");
  EXPECT_EQ(result.config.fsdp.wrap, "root");
}

TEST(Override, GivesRequiredKeysThatTheFileLacks) {
  EXPECT_EQ(problems_of("run: {steps: 1}\n", {"model.num_layers=1", "model.num_heads=1", "model.hidden_size=2",
                                              "model.seq_len=1", "model.vocab_size=2", "data.train=[a]",
                                              "batch.global_batch_size=1", "batch.micro_batch_size=1"}),
            Lines{});
}

TEST(Override, IsRefusedByTheRulesOfTheFile) {
  const auto problem = [](const std::string& override_text) {
    const Lines lines = problems_of(kModelT, {override_text});
    return lines.size() == 1 ? lines[0] : "problems: " + std::to_string(lines.size());
  };
  EXPECT_EQ(problem("run.steps=0010"),
            "--set: run.steps: found 0010, expected an integer from 1 to 1000000000000; hint: 10 (no leading zeros)");
  EXPECT_EQ(problem("run.steps="), "--set: run.steps: found nothing, expected an integer from 1 to 1000000000000");
  EXPECT_EQ(problem("optimizer.lr=1"),
            "--set: optimizer.lr: unknown key; hint: optimizer.learning_rate (lr in Megatron, torchtitan)");
  EXPECT_EQ(problem("optimzer.learning_rate=1"),
            "--set: optimzer.learning_rate: unknown key; hint: optimizer.learning_rate");
  EXPECT_EQ(problem("lr=1"), "--set: lr: unknown key; hint: optimizer.learning_rate (lr in Megatron, torchtitan)");
  EXPECT_EQ(problem("run={steps: 3}"), "--set: run: a section, expected one of its keys; hint: run.KEY=value");
  EXPECT_EQ(problem("run.steps"), "--set: run.steps: no =, expected key=value");
  EXPECT_EQ(problem("=3"), "--set: =3: no key before =, expected key=value");
  EXPECT_EQ(problem("data.train[].path=a"), "--set: data.train[].path: unknown key");
  EXPECT_EQ(problem("data.train=[a"), "--set: data.train: not valid YAML: end of sequence flow not found");
  EXPECT_EQ(problem("reproducibility.deterministic=true"), "--set: reproducibility.deterministic: not available yet");
  EXPECT_EQ(problem("schedule.warmup_steps=11"), "--set: schedule.warmup_steps: 11 is more than run.steps 10");
}

TEST(Override, ComesAfterTheProblemsOfTheFile) {
  EXPECT_EQ(problems_of(model_t_with("num_layers: 2", "num_layers: x"), {"run.steps=0"}),
            (Lines{"job.yaml:4: model.num_layers: found x, expected an integer from 1 to 10000",
                   "--set: run.steps: found 0, expected an integer from 1 to 1000000000000"}));
}

}  // namespace
}  // namespace tessera::testing
