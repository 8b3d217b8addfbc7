#include "runtime/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "parallel/collective_log.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/plan.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::TemporaryDirectory;

class TrainerTest : public ::testing::Test {
 protected:
  std::string tokens(const std::vector<std::uint32_t>& ids, std::int64_t vocab_size = 64) {
    return test::write_tokens(directory_ / ("tokens" + std::to_string(++files_) + ".bin"), ids, vocab_size);
  }
  std::string random_tokens(std::int64_t count, std::int64_t vocab_size = 64) {
    return test::write_tokens(directory_ / ("tokens" + std::to_string(++files_) + ".bin"), count, vocab_size);
  }
  std::vector<json> run(const JobConfig& config, int world = 1) {
    std::vector<json> events;
    for (const std::string& line : test::run_job(config, world, 1, directory_ / ("run" + std::to_string(++runs_))))
      events.push_back(json::parse(line));
    return events;
  }
  std::string run_path() const { return directory_ / ("run" + std::to_string(runs_)); }

  TemporaryDirectory directory_;
  int files_ = 0, runs_ = 0;
};

TEST_F(TrainerTest, TheLossStartsNearTheLogarithmOfTheVocabularyAndFallsOnOneBatch) {
  JobConfig config = test::model_t(40);
  config.run.overfit_one_batch = true;
  config.data.train = {{random_tokens(2001), 1.0}};
  const std::vector<json> events = run(config);
  EXPECT_NEAR(events[1]["loss"].get<double>(), std::log(64.0), 0.05);
  EXPECT_LT(events.back()["loss"].get<double>(), events[1]["loss"].get<double>() - 0.5);
}

TEST_F(TrainerTest, TheFirstUpdateMovesTheMostMovedWeightByTheLearningRate) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(2001), 1.0}};
  config.optimizer.eps = 1e-12;
  double largest = 0;
  test::run_ranks(config, 1, [&](test::RankParts& parts) {
    const TokenDataset dataset(config.data.train, 16, 64);
    const BatchLoader loader(dataset, SequenceOrder(dataset.num_sequences(), 8, 0, true), config.batch, parts.batch, 16,
                             0);
    const StepBatch batch = loader.load(0);
    const std::vector<float> before = parts.gather("block.1.feed_forward.up.weight");
    parts.executor.train(parts.plan.program, {.step = 1, .batch = &batch, .learning_rate = 1e-3});
    const std::vector<float> after = parts.gather("block.1.feed_forward.up.weight");
    for (std::size_t i = 0; i < before.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(after[i]) - before[i]));
  });
  EXPECT_NEAR(largest, 1e-3, 1e-6);  // 0.744e-3 would mean that the first update counts as the second
}

// One valid target with some loss in micro-batch 1, three in micro-batch 2: the mean is over targets, not over micro-batches.
TEST_F(TrainerTest, TheMeanLossIsOverValidTargetsInEveryLayout) {
  constexpr std::uint32_t kIgnored = 63;
  std::vector<std::uint32_t> first(17, kIgnored), second(17, kIgnored);
  first[5] = 7;
  second[2] = 9, second[8] = 11, second[16] = 13;
  JobConfig config = test::model_t(1);
  config.loss.ignore_index = kIgnored;
  config.data.shuffle = false;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 1;
  config.reproducibility.lanes = 1;
  config.data.train = {{tokens(first), 1.0}};
  const double loss1 = run(config)[1]["loss"].get<double>();
  config.data.train = {{tokens(second), 1.0}};
  const double loss2 = run(config)[1]["loss"].get<double>();

  config.batch.global_batch_size = 2;
  config.reproducibility.lanes = 2;
  const std::string one = tokens(first), two = tokens(second);
  config.data.train = {{one, 1.0}, {two, 1.0}};
  const double expected = (1 * loss1 + 3 * loss2) / 4;
  EXPECT_NEAR(run(config, 1)[1]["loss"].get<double>(), expected, 1e-6);
  EXPECT_NE(loss1, loss2);
  const json on_two = run(config, 2)[1];
  EXPECT_EQ(on_two["loss"], run(config, 1)[1]["loss"]);
  EXPECT_GE(on_two["max_loss"].get<double>(), std::max(loss1, loss2));
}

TEST_F(TrainerTest, AFullyMaskedMicroBatchChangesNothing) {
  constexpr std::uint32_t kIgnored = 63;
  std::vector<std::uint32_t> valid(17);
  for (std::size_t i = 0; i < valid.size(); ++i) valid[i] = static_cast<std::uint32_t>(3 * i + 1) % 60;
  const std::vector<std::uint32_t> masked(17, kIgnored);
  JobConfig config = test::model_t(1);
  config.loss.ignore_index = kIgnored;
  config.data.shuffle = false;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 1;
  config.reproducibility.lanes = 1;
  config.data.train = {{tokens(valid), 1.0}};
  const json alone = run(config)[1];
  config.batch.global_batch_size = 2;
  config.reproducibility.lanes = 2;
  const std::string one = tokens(valid), two = tokens(masked);
  config.data.train = {{one, 1.0}, {two, 1.0}};
  for (const int world : {1, 2}) {
    const json with_masked = run(config, world)[1];
    EXPECT_EQ(with_masked["loss"], alone["loss"]);
    EXPECT_EQ(with_masked["max_loss"], alone["max_loss"]);
    EXPECT_EQ(with_masked["grad_norm"], alone["grad_norm"]);
  }
}

TEST_F(TrainerTest, WithoutAnyValidTargetLossAndGradientAreZero) {
  JobConfig config = test::model_t(1);
  config.loss.ignore_index = 5;
  config.data.train = {{tokens(std::vector<std::uint32_t>(8 * 16 + 1, 5)), 1.0}};
  const json step = run(config, 2)[1];
  EXPECT_EQ(step["loss"].get<double>(), 0.0);
  EXPECT_EQ(step["grad_norm"].get<double>(), 0.0);
}

// Gradients are exactly 0 where every target is ignored: then only decay moves a weight, by 1 - 1e-2 · 0.1.
TEST_F(TrainerTest, WeightDecayMovesMatricesAndLeavesNormsAndBiases) {
  for (const int world : {1, 2}) {
    JobConfig config = test::model_t(1);
    config.loss.ignore_index = 5;
    config.optimizer.learning_rate = 1e-2;
    config.optimizer.weight_decay = 0.1;
    config.data.train = {{tokens(std::vector<std::uint32_t>(8 * 16 + 1, 5)), 1.0}};
    test::run_ranks(config, world, [&](test::RankParts& parts) {
      const TokenDataset dataset(config.data.train, 16, 64);
      const BatchLoader loader(dataset, SequenceOrder(dataset.num_sequences(), 8, 0, true), config.batch, parts.batch,
                               16, parts.rank);
      const StepBatch batch = loader.load(0);
      int decayed = 0, kept = 0;
      std::vector<std::vector<float>> before;
      for (const ParameterSpec& p : parts.plan.model.parameters) before.push_back(parts.gather(p.name));
      parts.executor.train(parts.plan.program, {.step = 1, .batch = &batch, .learning_rate = 1e-2});
      for (std::size_t p = 0; p < before.size(); ++p) {
        const ParameterSpec& spec = parts.plan.model.parameters[p];
        const std::vector<float> after = parts.gather(spec.name);
        const bool matrix = spec.shape.rank() == 2;
        for (std::size_t i = 0; i < after.size(); ++i) {
          if (matrix) {
            EXPECT_NEAR(after[i], before[p][i] * 0.999F, 1e-8F) << spec.name;
          } else {
            EXPECT_EQ(after[i], before[p][i]) << spec.name;
          }
        }
        ++(matrix ? decayed : kept);
      }
      EXPECT_EQ(decayed, 2 + 2 * 6);         // token and position tables; q, k, v, o, up, down per block
      EXPECT_EQ(kept, 2 * (2 * 2 + 6) + 2);  // two norms and six biases per block; the final norm
    });
  }
}

TEST_F(TrainerTest, EveryRowOfATiedTableMovesAndEqualsOneRank) {
  JobConfig config = test::model_t(1);
  config.model.vocab_size = 67;
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 8 * 16 + 1; ++i) ids.push_back(i % 67);
  config.data.train = {{tokens(ids, 67), 1.0}};
  std::vector<float> reference;
  for (const int world : {1, 2, 4}) {
    test::run_ranks(config, world, [&](test::RankParts& parts) {
      const TokenDataset dataset(config.data.train, 16, 67);
      const BatchLoader loader(dataset, SequenceOrder(dataset.num_sequences(), 8, 0, true), config.batch, parts.batch,
                               16, parts.rank);
      const StepBatch batch = loader.load(0);
      const std::vector<float> before = parts.gather("embedding.token.weight");
      parts.executor.train(parts.plan.program, {.step = 1, .batch = &batch, .learning_rate = 1e-3});
      const std::vector<float> after = parts.gather("embedding.token.weight");
      if (parts.rank != 0) return;
      for (std::size_t row = 0; row < 67; ++row) {
        EXPECT_FALSE(std::equal(after.begin() + static_cast<std::ptrdiff_t>(row * 32),
                                after.begin() + static_cast<std::ptrdiff_t>((row + 1) * 32),
                                before.begin() + static_cast<std::ptrdiff_t>(row * 32)))
            << "row " << row;
      }
      if (world == 1) reference = after;
      EXPECT_EQ(after, reference) << world << " ranks";
    });
  }
}

TEST_F(TrainerTest, EveryLayoutStartsFromTheSameState) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(2001), 1.0}};
  const std::string expected = run(config, 1)[0]["state_hash"];
  for (const int world : {2, 4}) {
    for (const std::string wrap : {"block", "root"}) {
      config.fsdp.wrap = wrap;
      EXPECT_EQ(run(config, world)[0]["state_hash"], expected);
    }
  }
}

TEST_F(TrainerTest, ProgramAndRecordedCallsShow25GathersAnd13ReducesPerStepAndRank) {
  for (const std::string wrap : {"block", "root"}) {
    JobConfig config = test::model_t(3);
    config.model.num_layers = 12;
    config.batch.global_batch_size = 4;
    config.reproducibility.lanes = 2;
    config.fsdp.wrap = wrap;
    config.data.train = {{random_tokens(2001), 1.0}};
    run(config, 2);
    const json plan = json::parse(std::ifstream(run_path() + "/plan.json"));
    EXPECT_EQ(plan["calls"]["all_gather"], wrap == "block" ? 25 : 1);
    EXPECT_EQ(plan["calls"]["reduce_scatter"], wrap == "block" ? 13 : 1);
    for (const std::string rank : {"00000", "00001"}) {
      const RankLog log = read_collective_log(run_path() + "/collectives/rank-" + rank + ".log");
      std::map<std::string, int> calls;  // "step op"
      for (const LoggedCall& call : log.calls) {
        ++calls[std::to_string(call.identity.step) + " " + std::string(name_of(call.identity.op))];
      }
      for (const std::string step : {"1", "2", "3"}) {
        EXPECT_EQ(calls[step + " all_gather"], wrap == "block" ? 25 : 1);
        EXPECT_EQ(calls[step + " reduce_scatter"], wrap == "block" ? 13 : 1);
      }
    }
  }
}

TEST_F(TrainerTest, TheWrittenConfigHoldsTheLanesThatWereUsed) {
  JobConfig config = test::model_t(1);
  config.reproducibility.lanes.reset();  // auto: 2 on two ranks
  config.data.train = {{random_tokens(2001), 1.0}};
  run(config, 2);
  EXPECT_EQ(load_config(run_path() + "/config.yaml").reproducibility.lanes, 2);
}

TEST_F(TrainerTest, AStepOfMoreMicroBatchesThanCanBeWrittenDownIsRefused) {
  JobConfig config = test::model_t(1);
  config.batch.global_batch_size = 1000000000;
  config.batch.micro_batch_size = 1;
  try {
    make_plan(config, resolve(config, 1), {.dp = 1}, 0, 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what())
                    .starts_with("batch.global_batch_size: 1000000000 are 1000000000 micro-batches "
                                 "of 1 on each of 1 ranks, expected at most "))
        << error.what();
  }
}

// Comparing calls changes no number; every level but off leaves logs that agree.
TEST_F(TrainerTest, EveryFingerprintLevelTrainsTheSameBits) {
  JobConfig config = test::model_t(3);
  config.data.train = {{random_tokens(2001), 1.0}};
  std::string hash;
  for (const std::string level : {"off", "log", "step", "strict"}) {
    for (const bool check : {false, true}) {
      config.collectives.fingerprint = level;
      config.collectives.program_check = check;
      const std::vector<json> events = run(config, 2);
      if (hash.empty()) hash = events.back()["state_hash"];
      EXPECT_EQ(events.back()["state_hash"], hash) << level;
    }
    if (level == "off") {
      EXPECT_FALSE(std::filesystem::exists(run_path() + "/collectives/rank-00000.log"));
      continue;
    }
    const RankLog a = read_collective_log(run_path() + "/collectives/rank-00000.log");
    const RankLog b = read_collective_log(run_path() + "/collectives/rank-00001.log");
    EXPECT_EQ(a.state, LogState::kEndedOk);
    ASSERT_EQ(a.communicators.size(), b.communicators.size());
    for (std::size_t i = 0; i < a.communicators.size(); ++i) {
      EXPECT_EQ(a.communicators[i].chain, b.communicators[i].chain) << level;
      EXPECT_EQ(a.communicators[i].num_finished, a.communicators[i].num_enqueued) << level;
    }
    const auto comparisons = std::count_if(a.calls.begin(), a.calls.end(), [](const LoggedCall& call) {
      return call.identity.what_view() == kHistoryName;
    });
    EXPECT_EQ(comparisons > 0, level == "step");
  }
}

TEST_F(TrainerTest, AnEpochSmallerThanAGlobalBatchIsRefused) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(16 * 7 + 1), 1.0}};  // 7 windows, 8 per batch
  try {
    run(config, 2);
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code, ExitCode::kData);
    EXPECT_EQ(error.rank, 0);
  }
}

// 10 sequences, 6 per batch: one batch an epoch, the tail of 4 logged.
TEST_F(TrainerTest, TailsOfAnEpochAreDroppedAndLogged) {
  JobConfig config = test::model_t(0);
  config.run.steps.reset();
  config.run.epochs = 3;
  config.batch.global_batch_size = 6;
  config.reproducibility.lanes = 3;
  config.data.train = {{random_tokens(16 * 10 + 1), 1.0}};
  const std::vector<json> events = run(config, 3);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[3]["epoch"], 2);
  EXPECT_EQ(events[3]["tokens_seen"], 3 * 6 * 16);
  std::string text;  // ranks as threads share the one logger: whoever opened it last has the lines
  for (const char* rank : {"0", "1", "2"}) {
    std::ifstream log(run_path() + "/logs/rank-0000" + rank + ".log");
    text += std::string((std::istreambuf_iterator<char>(log)), {});
  }
  EXPECT_NE(text.find("10 sequences per epoch in 1 batches, the last 4 dropped"), std::string::npos) << text;
}

TEST_F(TrainerTest, ANonFiniteLossStopsEveryRankByOnePolicyAndNamesTheRank) {
  // A learning rate that explodes the weights: after a few updates losses are not finite.
  JobConfig config = test::model_t(6);
  config.optimizer.learning_rate = 1e30;
  config.data.train = {{random_tokens(4001), 1.0}};
  config.run.on_nonfinite = "stop";
  try {
    run(config, 2);
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code, ExitCode::kNonFinite);
    EXPECT_NE(std::string(error.what()).find("not finite on rank"), std::string::npos) << error.what();
  }
}

// One rank's shard is poisoned for one step: nobody updates, and afterwards the run goes on as if the step had not been.
TEST_F(TrainerTest, ANonFiniteStepIsSkippedOnEveryRankAndChangesNoState) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(2001), 1.0}};
  test::run_ranks(config, 2, [&](test::RankParts& parts) {
    const TokenDataset dataset(config.data.train, 16, 64);
    const BatchLoader loader(dataset, SequenceOrder(dataset.num_sequences(), 8, 0, true), config.batch, parts.batch, 16,
                             parts.rank);
    const StepBatch batch = loader.load(0);
    parts.executor.train(parts.plan.program, {.step = 1, .batch = &batch, .learning_rate = 1e-3});
    const std::uint64_t before = parts.optimizer.state_hash(parts.streams.compute);
    float& element = parts.model.unit(1).parameter_shard()[0];
    const float healthy = element;
    if (parts.rank == 1) element = std::numeric_limits<float>::quiet_NaN();
    const StepOutcome skipped =
        parts.executor.train(parts.plan.program, {.step = 2, .batch = &batch, .learning_rate = 1e-3});
    element = healthy;
    EXPECT_FALSE(skipped.updated);
    EXPECT_FALSE(skipped.non_finite_ranks.empty());
    EXPECT_EQ(parts.optimizer.state_hash(parts.streams.compute), before);
    EXPECT_TRUE(parts.executor.train(parts.plan.program, {.step = 2, .batch = &batch, .learning_rate = 1e-3}).updated);
  });
}

// A group's own rate and decay replace the config's; the last group that matches counts.
TEST_F(TrainerTest, OptimizerGroupsFreezeByRateAndTheLastMatchCounts) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(2001), 1.0}};
  config.optimizer.learning_rate = 0.0;  // everything frozen but …
  config.optimizer.groups = {{.match = "block", .learning_rate = 5.0},
                             {.match = "block", .learning_rate = 0.0},
                             {.match = "final_norm", .learning_rate = 1e-3}};
  test::run_ranks(config, 1, [&](test::RankParts& parts) {
    const TokenDataset dataset(config.data.train, 16, 64);
    const BatchLoader loader(dataset, SequenceOrder(dataset.num_sequences(), 8, 0, true), config.batch, parts.batch, 16,
                             0);
    const StepBatch batch = loader.load(0);
    const auto norm = parts.gather("final_norm.weight"), block = parts.gather("block.0.attention.query.weight"),
               table = parts.gather("embedding.token.weight");
    parts.executor.train(parts.plan.program,
                         {.step = 1, .batch = &batch, .learning_rate = 0.0, .schedule_factor = 1.0});
    EXPECT_EQ(parts.gather("block.0.attention.query.weight"), block);
    EXPECT_EQ(parts.gather("embedding.token.weight"), table);
    const std::vector<float> moved = parts.gather("final_norm.weight");
    for (std::size_t i = 0; i < norm.size(); ++i) EXPECT_NEAR(std::abs(moved[i] - norm[i]), 1e-3, 1e-5);
  });
}

TEST_F(TrainerTest, ARunDirectoryOfSomebodyElseIsRefusedAndLeftAlone) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(2001), 1.0}};
  const std::string path = directory_ / "mine";
  std::filesystem::create_directory(path);
  std::ofstream(path + "/thesis.tex") << "years";
  try {
    test::run_job(config, 2, 1, path);
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code, ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("thesis.tex"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(std::filesystem::exists(path + "/thesis.tex"));
}

// 3 epochs of one batch each with another limit far away: the last step is logged, hashed and evaluated all the same.
TEST_F(TrainerTest, TheLastStepIsLoggedHashedAndEvaluatedWhateverEndsTheRun) {
  JobConfig config = test::model_t(1000);
  config.run.epochs = 3;
  config.run.log_every = 100;
  config.run.hash_every = 100;
  config.run.evaluate_every = 100;
  config.data.train = {{random_tokens(16 * 8 + 1), 1.0}};
  config.data.validation = {random_tokens(16 * 3 + 1)};
  const std::vector<json> events = run(config, 2);
  ASSERT_EQ(events.size(), 4U);  // start, validation before step 1, step 3, validation after it
  EXPECT_EQ(events[2]["step"], 3);
  EXPECT_TRUE(events[2].contains("state_hash"));
  EXPECT_EQ(events[3]["kind"], "validation");
  EXPECT_EQ(events[3]["step"], 3);
}

// Weights of 1e30 after one update: no logit is a number.
TEST_F(TrainerTest, ASampleOfLogitsThatAreNotNumbersEndsEveryRankByOneAgreedError) {
  JobConfig config = test::model_t(2);
  config.model.vocab_size = 256;
  config.optimizer.learning_rate = 1e30;
  config.data.train = {{random_tokens(2001, 256), 1.0}};
  config.data.tokenizer = "bytes";
  config.run.sample_every = 1;
  for (const int world : {1, 2}) {
    try {
      run(config, world);
      FAIL();
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.exit_code, ExitCode::kNonFinite);
      EXPECT_TRUE(std::string(error.what()).starts_with("sampling: ")) << error.what();
    }
  }
}

TEST_F(TrainerTest, SamplingAndEvaluationLeaveTheTrainingNumbersAlone) {
  JobConfig config = test::model_t(12);
  config.model.vocab_size = 256;
  config.model.seq_len = 24;
  config.data.train = {{random_tokens(4001, 256), 1.0}};
  const std::vector<json> plain = run(config, 2);
  config.data.tokenizer = "bytes";
  config.data.validation = {random_tokens(24 * 11 + 1, 256)};
  config.run.sample_every = 4;
  config.run.evaluate_every = 3;
  std::vector<json> steps;
  for (const json& event : run(config, 2)) {
    if (event.value("kind", "step") == "step") steps.push_back(event);
  }
  ASSERT_EQ(steps.size(), 12U);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i]["state_hash"], plain[i + 1]["state_hash"]) << i;
}

// One rank is asked in its second evaluation batch of eleven: all leave at the end of that batch, and nobody calls a part a result.
TEST_F(TrainerTest, ARequestToStopDuringAnEvaluationIsFollowedAtTheEndOfItsBatch) {
  for (const int world : {1, 2, 4}) {
    JobConfig config = test::model_t(5);
    config.run.evaluate_every = 1;
    config.data.train = {{random_tokens(2001), 1.0}};
    config.data.validation = {random_tokens(11 * 8 * 16 + 1)};
    std::vector<int> questions(static_cast<std::size_t>(world), 0);
    const std::string path = directory_ / ("stopped" + std::to_string(world));
    const ExitCode code = test::run_until(config, world, 1, path, [&](int rank) {
      return ++questions[static_cast<std::size_t>(rank)] == 2 && rank == world - 1;
    });
    EXPECT_EQ(code, ExitCode::kStopped);
    EXPECT_EQ(questions, std::vector<int>(static_cast<std::size_t>(world), 2));
    std::ifstream metrics(path + "/metrics.jsonl");
    std::vector<std::string> kinds;
    for (std::string line; std::getline(metrics, line);) kinds.push_back(json::parse(line).value("kind", "step"));
    EXPECT_EQ(kinds, (std::vector<std::string>{"start"}));
  }
}

// Equal weights before step 1: what shapes the training must not show in the measure.
TEST_F(TrainerTest, TheValidationLossIsThePlainCrossEntropyWhateverTheTrainingAdds) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(2001), 1.0}};
  config.data.validation = {random_tokens(16 * 11 + 1)};
  config.run.evaluate_every = 1;
  const std::vector<json> plain = run(config, 2);
  config.loss.label_smoothing = 0.3;
  config.loss.z_loss = 0.01;
  const std::vector<json> shaped = run(config, 2);
  EXPECT_EQ(shaped[1]["validation_loss"], plain[1]["validation_loss"]);
  EXPECT_GT(shaped[2]["loss"].get<double>(), plain[2]["loss"].get<double>() + 0.1);  // z_loss · (ln 64)² = 0.17
}

TEST_F(TrainerTest, AnEarlierRunsFilesAreMovedAsideNotOverwritten) {
  JobConfig config = test::model_t(1);
  config.data.train = {{random_tokens(2001), 1.0}};
  const std::string path = directory_ / "again";
  test::run_job(config, 1, 1, path);
  const std::vector<std::string> second = test::run_job(config, 1, 1, path);
  EXPECT_EQ(second.size(), 2U);
  EXPECT_TRUE(std::ifstream(path + "/attempts/1/metrics.jsonl").good());
}

TEST_F(TrainerTest, RanksOfOneDpPositionSeeTheSameSequencesWhateverTheNumberOfRanks) {
  const TokenDataset dataset({{random_tokens(2001), 1.0}}, 16, 64);
  const JobConfig config = test::model_t(1);
  const SequenceOrder order(dataset.num_sequences(), 8, 0, true);
  const auto load = [&](int world, int rank) {
    return BatchLoader(dataset, order, config.batch, resolve(config, world), 16, rank).load(3);
  };
  const StepBatch all = load(1, 0);
  const StepBatch left = load(2, 0), right = load(2, 1);
  EXPECT_NE(left.digest(), right.digest());
  std::vector<std::int32_t> joined = left.tokens;
  joined.insert(joined.end(), right.tokens.begin(), right.tokens.end());
  EXPECT_EQ(joined, all.tokens);
}

}  // namespace
}  // namespace tessera
