// What a job file may say, and what is said about one that is wrong.
#include "runtime/config/load.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/base/error.h"
#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

constexpr std::string_view kSteps = "an integer from 1 to 1000000000000";
constexpr std::string_view kRate = "a number of at least 0 and at most 1000000";

std::string steps_problem(std::string_view written) {
  const Lines lines = problems_of(model_t_with("steps: 10", "steps: " + std::string(written)));
  return lines.size() == 1 ? lines[0] : "problems: " + std::to_string(lines.size());
}

std::string rate_problem(std::string_view written) {
  const Lines lines = problems_of(model_t_with("learning_rate: 1e-3", "learning_rate: " + std::string(written)));
  return lines.size() == 1 ? lines[0] : "problems: " + std::to_string(lines.size());
}

TEST(LoadConfig, ReadsModelTWithDefaultsFilledIn) {
  const ConfigResult result = check_config_text(kModelT, "jobs/model-t.yaml");
  ASSERT_TRUE(result.problems.empty()) << result.problems[0].line_text();
  const JobConfig& job = result.config;
  EXPECT_EQ(job.source, "jobs/model-t.yaml");
  EXPECT_EQ(job.run.name, "model-t");
  EXPECT_EQ(job.run.steps, 10);
  EXPECT_EQ(job.run.epochs, std::nullopt);
  EXPECT_EQ(job.model.num_layers, 2);
  EXPECT_EQ(job.model.kv_heads(), 4);
  EXPECT_EQ(job.model.head_size(), 8);
  EXPECT_EQ(job.model.feed_forward_size(), 128);
  EXPECT_EQ(job.data.train, (std::vector<DataSource>{{"data/t.bin", 1.0}}));
  EXPECT_EQ(job.batch.global_batch_size, 8);
  EXPECT_EQ(job.optimizer.name, "adamw");
  EXPECT_EQ(job.optimizer.clip_norm, 0.0);
  EXPECT_EQ(job.schedule.name, "constant");
  EXPECT_EQ(job.reproducibility.lanes, 4);
  EXPECT_EQ(job.mesh.dp, std::nullopt);
}

TEST(LoadConfig, ReadsEveryKindOfValue) {
  const ConfigResult result = check_config_text(
      model_t_with("learning_rate: 1e-3\n",
                   "learning_rate: 1e-3\n  betas: [0.8, 0.95]\n  groups:\n    - match: norm\n      weight_decay: 0\n"
                   "    - {match: \"^head\", learning_rate: 5e-4}\n") +
          "mesh: {dp: auto, pp: 1}\n"
          "fsdp: {wrap: 3, reshard_after_forward: false}\n"
          "device: {memory_limit: 1.5GiB, threads: 2}\n"
          "schedule: {name: cosine, warmup_steps: 2, min_learning_rate: 1e-4}\n",
      "job.yaml",
      {"run.seed=18446744073709551615", "data.train=[a.bin, {path: 'b/*.bin', weight: 0.25}]",
       "data.validation=[c.bin]", "run.evaluate_every=7"});
  ASSERT_TRUE(result.problems.empty()) << result.problems[0].line_text();
  const JobConfig& job = result.config;
  EXPECT_EQ(job.optimizer.betas, (std::vector<double>{0.8, 0.95}));
  ASSERT_EQ(job.optimizer.groups.size(), 2u);
  EXPECT_EQ(job.optimizer.groups[0].match, "norm");
  EXPECT_EQ(job.optimizer.groups[0].weight_decay, 0.0);
  EXPECT_EQ(job.optimizer.groups[0].learning_rate, std::nullopt);
  EXPECT_EQ(job.optimizer.groups[1].learning_rate, 5e-4);
  EXPECT_EQ(job.fsdp.wrap, "3");
  EXPECT_EQ(job.fsdp.reshard_after_forward, "false");
  EXPECT_EQ(memory_limit_bytes(job.device), 1610612736);
  EXPECT_EQ(job.device.threads, 2);
  EXPECT_EQ(job.run.seed, 18446744073709551615u);
  EXPECT_EQ(job.data.train, (std::vector<DataSource>{{"a.bin", 1.0}, {"b/*.bin", 0.25}}));
  EXPECT_EQ(job.data.validation, std::vector<std::string>{"c.bin"});
}

// Case A9.
TEST(LoadConfig, RefusesIntegersThatAreNotPlainDecimals) {
  const auto expected = [](std::string_view found, std::string_view hint) {
    return "job.yaml:2: run.steps: found " + std::string(found) + ", expected " + std::string(kSteps) +
           "; hint: " + std::string(hint);
  };
  EXPECT_EQ(steps_problem("0010"), expected("0010", "10 (no leading zeros)"));
  EXPECT_EQ(steps_problem("08"), expected("08", "8 (no leading zeros)"));
  EXPECT_EQ(steps_problem("0x10"), expected("0x10", "16 (decimal)"));
  EXPECT_EQ(steps_problem("0o10"), expected("0o10", "8 (decimal)"));
  EXPECT_EQ(steps_problem("1e3"), expected("1e3", "1000"));
  EXPECT_EQ(steps_problem("2.0"), expected("2.0", "2"));
  EXPECT_EQ(steps_problem("1_000"), expected("1_000", "1000 (digits only)"));
  EXPECT_EQ(steps_problem("\"10\""), expected("\"10\"", "10, without quotes"));
}

TEST(LoadConfig, RefusesIntegersOutOfRange) {
  const std::string tail = ", expected " + std::string(kSteps);
  EXPECT_EQ(steps_problem("0"), "job.yaml:2: run.steps: found 0" + tail);
  EXPECT_EQ(steps_problem("-5"), "job.yaml:2: run.steps: found -5" + tail);
  EXPECT_EQ(steps_problem("2.5"), "job.yaml:2: run.steps: found 2.5" + tail);
  EXPECT_EQ(steps_problem("99999999999999999999999"), "job.yaml:2: run.steps: found 99999999999999999999999" + tail);
  EXPECT_EQ(steps_problem("true"), "job.yaml:2: run.steps: found true" + tail);
  EXPECT_EQ(steps_problem("[1]"), "job.yaml:2: run.steps: found a list" + tail);
  EXPECT_EQ(steps_problem("{a: 1}"), "job.yaml:2: run.steps: found a mapping" + tail);
  EXPECT_EQ(steps_problem("+7"), "problems: 0");
}

// Case A10.
TEST(LoadConfig, RefusesNumbersThatAreNotFiniteDecimals) {
  const std::string expected = ", expected " + std::string(kRate);
  EXPECT_EQ(rate_problem("abc"), "job.yaml:15: optimizer.learning_rate: found abc" + expected);
  EXPECT_EQ(rate_problem(""), "job.yaml:15: optimizer.learning_rate: found nothing" + expected);
  EXPECT_EQ(rate_problem("~"), "job.yaml:15: optimizer.learning_rate: found nothing" + expected);
  EXPECT_EQ(rate_problem(".nan"),
            "job.yaml:15: optimizer.learning_rate: found .nan" + expected + "; hint: a finite number");
  EXPECT_EQ(rate_problem("-.inf"),
            "job.yaml:15: optimizer.learning_rate: found -.inf" + expected + "; hint: a finite number");
  EXPECT_EQ(rate_problem("-1"), "job.yaml:15: optimizer.learning_rate: found -1" + expected);
  EXPECT_EQ(rate_problem("1e400"),
            "job.yaml:15: optimizer.learning_rate: found 1e400" + expected + "; hint: a number that a double holds");
  EXPECT_EQ(rate_problem("\"6e-4\""),
            "job.yaml:15: optimizer.learning_rate: found \"6e-4\"" + expected + "; hint: 6e-4, without quotes");
  EXPECT_EQ(rate_problem("00.5"),
            "job.yaml:15: optimizer.learning_rate: found 00.5" + expected + "; hint: 0.5 (no leading zeros)");
  EXPECT_EQ(rate_problem("false"), "job.yaml:15: optimizer.learning_rate: found false" + expected);
}

TEST(LoadConfig, ReadsNumbersCorrectlyRounded) {
  const auto rate = [](std::string_view written) {
    const auto result = check_config_text(model_t_with("1e-3", written), "job.yaml");
    EXPECT_TRUE(result.problems.empty()) << result.problems[0].line_text();
    return result.config.optimizer.learning_rate;
  };
  EXPECT_EQ(rate("6e-4"), 0.0006);
  EXPECT_EQ(rate("0.0006"), 0.0006);
  EXPECT_EQ(rate("6E-4"), 0.0006);
  EXPECT_EQ(rate("+.0006"), 0.0006);
  EXPECT_EQ(rate("3"), 3.0);
  EXPECT_EQ(rate("1."), 1.0);
  // Around the midpoint of 0.1 and the next double: a tie goes to the even one, one more digit at the far end goes up.
  const std::string midpoint = "0.100000000000000012490009027033011079765856266021728515625";
  EXPECT_EQ(rate(midpoint), 0.1);
  EXPECT_EQ(rate(midpoint + "0000000000000000001"), 0.10000000000000002);
}

TEST(LoadConfig, RefusesBooleansThatAreNotTrueOrFalse) {
  for (const auto& [found, hint] : {std::pair{"1", "true"},
                                    {"0", "false"},
                                    {"yes", "true"},
                                    {"off", "false"},
                                    {"True", "true"},
                                    {"\"true\"", "true, without quotes"}}) {
    EXPECT_EQ(problems_of(model_t_with("  steps: 10", "  steps: 10\n  overfit_one_batch: " + std::string(found))),
              Lines{"job.yaml:3: run.overfit_one_batch: found " + std::string(found) +
                    ", expected true or false; hint: " + hint});
  }
}

TEST(LoadConfig, RefusesOtherTypesWhereTextIsExpected) {
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "steps: 10\n  name: 2024")),
            Lines{"job.yaml:3: run.name: found 2024, expected text; hint: \"2024\""});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "steps: 10\n  name: \"2024\"")), Lines{});
  EXPECT_EQ(
      problems_of(model_t_with("steps: 10", "steps: 10\n  name: a/b")),
      Lines{
          "job.yaml:3: run.name: found a/b, expected the name of a folder: not . or .., no slash, at most 200 bytes"});
  EXPECT_EQ(
      problems_of(model_t_with("[data/t.bin]", "data/t.bin")),
      Lines{
          "job.yaml:10: data.train: found data/t.bin, expected a list of globs or {path, weight}; hint: [data/t.bin]"});
  EXPECT_EQ(problems_of(model_t_with("[data/t.bin]", "[]")),
            Lines{"job.yaml:10: data.train: found an empty list, expected a list of globs or {path, weight}"});
  EXPECT_EQ(problems_of(model_t_and("device:\n  memory_limit: 8GB\n")),
            Lines{"job.yaml:19: device.memory_limit: found 8GB, expected bytes, or a number with KiB, MiB, GiB or TiB; "
                  "hint: 8GiB"});
}

TEST(LoadConfig, RefusesWordsOutsideTheChoice) {
  EXPECT_EQ(problems_of(model_t_with("vocab_size: 64", "vocab_size: 64\n  norm: rmsnrom")),
            Lines{"job.yaml:9: model.norm: found rmsnrom, expected layernorm or rmsnorm; hint: rmsnorm"});
  EXPECT_EQ(problems_of(model_t_and("fsdp:\n  wrap: 0\n")),
            Lines{"job.yaml:19: fsdp.wrap: found 0, expected block, root or an integer from 1 to 10000"});
  EXPECT_EQ(problems_of(model_t_and("mesh:\n  dp: Auto\n")),
            Lines{"job.yaml:19: mesh.dp: found Auto, expected auto or an integer from 1 to 1000000; hint: auto"});
}

TEST(LoadConfig, NamesRequiredKeysThatAreMissing) {
  EXPECT_EQ(problems_of("run: {seed: 1}\n"),
            (Lines{"job.yaml:1: run.steps: missing, expected run.steps or run.epochs",
                   "job.yaml: model.num_layers: missing, expected an integer from 1 to 10000",
                   "job.yaml: model.num_heads: missing, expected an integer from 1 to 65536",
                   "job.yaml: model.hidden_size: missing, expected an integer from 1 to 1048576",
                   "job.yaml: model.seq_len: missing, expected an integer from 1 to 16777216",
                   "job.yaml: model.vocab_size: missing, expected an integer from 2 to 2147483647",
                   "job.yaml: data.train: missing, expected a list of globs or {path, weight}",
                   "job.yaml: batch.global_batch_size: missing, expected an integer from 1 to 2147483647",
                   "job.yaml: batch.micro_batch_size: missing, expected an integer from 1 to 2147483647"}));
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "epochs: 1")), Lines{});
}

TEST(LoadConfig, DoesNotCallAMistypedRequiredKeyMissingAsWell) {
  EXPECT_EQ(problems_of(model_t_with("num_heads", "num_haeds")),
            Lines{"job.yaml:5: model.num_haeds: unknown key; hint: num_heads"});
}

TEST(LoadConfig, RefusesDuplicateKeysAndSections) {
  EXPECT_EQ(problems_of(model_t_with("  num_heads: 4\n", "  num_heads: 4\n  num_heads: 8\n")),
            Lines{"job.yaml:6: model.num_heads: duplicate key, first on line 5"});
  EXPECT_EQ(problems_of(model_t_and("run: {steps: 20}\n")), Lines{"job.yaml:18: run: duplicate key, first on line 1"});
  EXPECT_EQ(problems_of(model_t_with("[data/t.bin]", "[{path: a, weight: 1, weight: 2}]")),
            Lines{"job.yaml:10: data.train[0].weight: duplicate key, first on line 10"});
}

TEST(LoadConfig, ListsAllProblemsInTheOrderOfTheFile) {
  EXPECT_EQ(problems_of("run:\n  steps: 0\nmodel:\n  n_layer: 2\n  num_heads: four\nbatch: 5\n"),
            (Lines{"job.yaml:2: run.steps: found 0, expected " + std::string(kSteps),
                   "job.yaml:3: model.hidden_size: missing, expected an integer from 1 to 1048576",
                   "job.yaml:3: model.seq_len: missing, expected an integer from 1 to 16777216",
                   "job.yaml:3: model.vocab_size: missing, expected an integer from 2 to 2147483647",
                   "job.yaml:4: model.n_layer: unknown key; hint: model.num_layers (n_layer in nanoGPT, Hugging Face)",
                   "job.yaml:5: model.num_heads: found four, expected an integer from 1 to 65536",
                   "job.yaml:6: batch: found 5, expected a mapping of its keys",
                   "job.yaml: data.train: missing, expected a list of globs or {path, weight}"}));
}

TEST(LoadConfig, ThrowsAllProblemsInOneConfigError) {
  try {
    load_config(std::string(TESSERA_SOURCE_DIR) + "/configs/tiny.yaml", {"run.steps=0", "model.lr=1"});
    FAIL() << "loaded";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--set: run.steps: found 0, expected an integer from 1 to 1000000000000\n"
                 "--set: model.lr: unknown key; hint: optimizer.learning_rate (lr in Megatron, torchtitan)");
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
  }
}

}  // namespace
}  // namespace tessera::testing
