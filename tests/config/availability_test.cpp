// Keys whose feature comes later are refused by name, never ignored.
#include <gtest/gtest.h>

#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

TEST(Availability, RefusesValuesOfLaterFeaturesAndNamesWhatIsThere) {
  const auto problem = [](const std::string& line) {
    const std::size_t space = line.find(": ");
    const std::size_t dot = line.find('.');
    const std::string text = dot < space ? line.substr(0, dot) + ":\n  " + line.substr(dot + 1) + "\n" : line + "\n";
    const std::string head = line.substr(0, dot) + ":\n";
    const bool has = dot < space && std::string(kModelT).find(head) != std::string::npos;
    const Lines lines = problems_of(has ? model_t_with(head, text) : model_t_and(text));
    return lines.size() == 1 ? lines[0].substr(lines[0].find(' ') + 1) : "problems: " + std::to_string(lines.size());
  };
  EXPECT_EQ(problem("mesh.pp: 2"), "mesh.pp: 2 is not available yet; hint: 1");
  EXPECT_EQ(problem("mesh.tp: 2"), "mesh.tp: 2 is not available yet; hint: 1");
  EXPECT_EQ(problem("mesh.tp: 0"), "mesh.tp: found 0, expected an integer from 1 to 1000000");
  EXPECT_EQ(problem("model.dropout: 0.1"), "model.dropout: 0.1 is not available yet; hint: 0");
  EXPECT_EQ(problem("data.tokenizer: gpt2"),
            "data.tokenizer: found gpt2, expected bytes, a *.model file or a tokenizer.json");
  EXPECT_EQ(problem("data.document_separator: 0"), "data.document_separator: not available yet");
  EXPECT_EQ(problem("precision.compute: bf16"), "precision.compute: bf16 is not available yet; hint: fp32");
  EXPECT_EQ(problem("precision.reduce: bf16"), "precision.reduce: bf16 is not available yet; hint: fp32");
  EXPECT_EQ(problem("precision.loss_scale: dynamic"), "precision.loss_scale: not available yet");
  EXPECT_EQ(problem("pipeline.schedule: 1f1b"), "pipeline.schedule: not available yet");
  EXPECT_EQ(problem("recompute: full"), "recompute: full is not available yet; hint: none");
  EXPECT_EQ(problem("optimizer.name: lion"), "optimizer.name: lion is not available yet; hint: adamw");
  EXPECT_EQ(problem("optimizer.momentum: 0.9"), "optimizer.momentum: not available yet");
  EXPECT_EQ(problem("optimizer.nesterov: false"), "optimizer.nesterov: not available yet");
  EXPECT_EQ(problem("schedule.name: wsd"), "schedule.name: wsd is not available yet; hint: constant, linear or cosine");
  EXPECT_EQ(problem("schedule.gamma: 0.1"), "schedule.gamma: not available yet");
  EXPECT_EQ(problem("collectives.backend: nccl"),
            "collectives.backend: nccl is not available yet; hint: auto, shm or mpi");
  EXPECT_EQ(problem("reproducibility.tp_splits: 2"), "reproducibility.tp_splits: 2 is not available yet; hint: 1");
  EXPECT_EQ(problem("reproducibility.deterministic: true"), "reproducibility.deterministic: not available yet");
  EXPECT_EQ(problem("device.kind: cuda"), "device.kind: cuda is not available yet; hint: auto or cpu");
}

TEST(Availability, AcceptsTheValueThatIsThere) {
  EXPECT_EQ(
      problems_of(model_t_and(
          "mesh: {pp: 1, tp: 1, placement: canonical}\nprecision: {compute: fp32, reduce: fp32}\nrecompute: none\n"
          "fsdp: {strategy: full_shard, reduce: once, backward_prefetch: backward_post, forward_prefetch_depth: 0}\n"
          "collectives: {backend: mpi, timeout_seconds: 2.5}\ndevice: {kind: cpu, bind: none}\n"
          "loss: {label_smoothing: 0.1, z_loss: 1e-4, ignore_index: -1}\n")),
      Lines{});
}

TEST(Availability, RefusesAKeyThatAnotherKeyMakesMeaningless) {
  EXPECT_EQ(problems_of(model_t_and("schedule: {warmup_steps: 2, min_learning_rate: 1e-5}\n")),
            Lines{"job.yaml:18: schedule.min_learning_rate: has no effect with schedule.name constant; hint: "
                  "schedule.name: linear or cosine"});
  EXPECT_EQ(
      problems_of(model_t_with("vocab_size: 64", "vocab_size: 64\n  rope_theta: 500000")),
      Lines{"job.yaml:9: model.rope_theta: has no effect with model.positions learned; hint: model.positions: rope"});
}

TEST(Availability, LetsAnOverrideSwitchOffWhatTheFileRefines) {
  const std::string cosine =
      model_t_and("schedule: {name: cosine, warmup_steps: 2, decay_steps: 5, min_learning_rate: 1e-5}\n");
  const ConfigResult result = check_config_text(cosine, "job.yaml", {"schedule.name=constant"});
  ASSERT_TRUE(result.problems.empty()) << result.problems[0].line_text();
  EXPECT_EQ(result.config.schedule.decay_steps, std::nullopt);
  EXPECT_EQ(result.config.schedule.min_learning_rate, 0.0);
  EXPECT_EQ(result.config.schedule.warmup_steps, 2);
}

}  // namespace
}  // namespace tessera::testing
