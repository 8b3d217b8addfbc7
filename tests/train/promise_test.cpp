// Change the cluster, keep the bits: every loss, norm and state_hash of a job is the same in every layout.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::TemporaryDirectory;

class Promise : public ::testing::Test {
 protected:
  // The promised numbers of one run of the job in one layout.
  std::vector<std::string> numbers(JobConfig config, int world, int threads) {
    config.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, config.model.vocab_size), 1.0}};
    return test::promised_numbers(
        test::run_job(config, world, threads, directory_ / ("run" + std::to_string(++runs_))));
  }

  TemporaryDirectory directory_;
  int runs_ = 0;
};

TEST_F(Promise, RanksThreadsAndWrapChangeNoBitOfModelT) {
  const JobConfig config = test::model_t(20);
  const std::vector<std::string> expected = numbers(config, 1, 1);
  ASSERT_EQ(expected.size(), 21U);  // start and 20 steps
  for (const int world : {1, 2, 4}) {
    for (const int threads : {1, 2}) {
      for (const std::string wrap : {"block", "root"}) {
        JobConfig other = config;
        other.fsdp.wrap = wrap;
        EXPECT_EQ(numbers(other, world, threads), expected)
            << world << " ranks, " << threads << " threads, wrap " << wrap;
      }
    }
  }
}

TEST_F(Promise, RanksChangeNoBitOfTheLlamaFamily) {
  const JobConfig config = test::llama_t(10);
  const std::vector<std::string> expected = numbers(config, 1, 1);
  EXPECT_EQ(numbers(config, 2, 2), expected);
  EXPECT_EQ(numbers(config, 4, 1), expected);
}

TEST_F(Promise, TwoMicroBatchesPerLaneChangeNoBit) {
  JobConfig config = test::model_t(10);
  config.reproducibility.lanes = 2;  // accumulation 2
  const std::vector<std::string> expected = numbers(config, 1, 1);
  EXPECT_EQ(numbers(config, 2, 1), expected);
  config.fsdp.wrap = "root";
  EXPECT_EQ(numbers(config, 2, 2), expected);
}

TEST_F(Promise, AnOddNumberOfRanksKeepsTheTree) {
  JobConfig config = test::model_t(5);
  config.batch.global_batch_size = 12;
  config.reproducibility.lanes = 6;
  const std::vector<std::string> expected = numbers(config, 3, 1);
  EXPECT_EQ(numbers(config, 6, 1), expected);
}

TEST_F(Promise, PrefetchLimitAndReshardChangeNoBit) {
  JobConfig config = test::model_t(5);
  const std::vector<std::string> expected = numbers(config, 2, 1);
  for (const std::string prefetch : {"backward_pre", "backward_post", "none"}) {
    for (const std::int64_t limit : {1, 3}) {
      for (const std::string reshard : {"true", "false"}) {
        JobConfig other = config;
        other.fsdp.backward_prefetch = prefetch;
        other.fsdp.max_inflight_all_gathers = limit;
        other.fsdp.forward_prefetch_depth = limit;
        other.fsdp.reshard_after_forward = reshard;
        EXPECT_EQ(numbers(other, 2, 1), expected) << prefetch << limit << reshard;
      }
    }
  }
}

struct StrategyChoice {
  std::string strategy, shard_size, wrap;
};

// T on 1, 2 and 4 ranks; hybrid groups of 1, 2 and all.
const std::vector<StrategyChoice> kStrategies = {
    {"full_shard", "host", "block"},   {"shard_grad_op", "host", "block"}, {"shard_grad_op", "host", "root"},
    {"hybrid_shard", "host", "block"}, {"hybrid_shard", "1", "root"},      {"hybrid_shard", "2", "2"},
    {"hybrid_shard", "2", "root"},     {"no_shard", "host", "block"},      {"no_shard", "host", "root"}};

JobConfig with_strategy(JobConfig config, const StrategyChoice& choice) {
  config.fsdp.strategy = choice.strategy;
  config.fsdp.shard_size = choice.shard_size;
  config.fsdp.wrap = choice.wrap;
  return config;
}

TEST_F(Promise, StrategyChangesNoBitWithAccumulationClippingAndEvaluation) {
  for (const std::string reduce : {"once", "every_micro_batch"}) {
    JobConfig config = test::model_t(5);
    config.batch.global_batch_size = 16;  // two micro-batches per lane
    config.fsdp.reduce = reduce;
    config.optimizer.clip_norm = 0.05;
    config.run.evaluate_every = 2;
    config.data.validation = {test::write_tokens(directory_ / "validation.bin", 601, config.model.vocab_size, 7)};
    const std::vector<std::string> expected = numbers(config, 1, 1);
    for (const int world : {2, 4}) {
      for (const StrategyChoice& choice : kStrategies) {
        EXPECT_EQ(numbers(with_strategy(config, choice), world, 1), expected)
            << world << " ranks, " << choice.strategy << " " << choice.shard_size << ", wrap " << choice.wrap
            << ", reduce " << reduce;
      }
    }
  }
}

TEST_F(Promise, StrategyChangesNoBitOfTheLlamaFamilyOnAnOddNumberOfReplicas) {
  JobConfig config = test::llama_t(4);
  config.batch.global_batch_size = 12;
  config.reproducibility.lanes = 6;
  const std::vector<std::string> expected = numbers(config, 3, 1);
  EXPECT_EQ(numbers(with_strategy(config, {"hybrid_shard", "2", "block"}), 6, 1), expected) << "three replicas of two";
  EXPECT_EQ(numbers(with_strategy(config, {"no_shard", "host", "block"}), 6, 1), expected);
  EXPECT_EQ(numbers(with_strategy(config, {"shard_grad_op", "host", "1"}), 3, 1), expected);
}

TEST_F(Promise, RanksThreadsWrapAndStrategyChangeNoBitOfModelW) {
  const JobConfig config = test::model_w(2);
  const std::vector<std::string> expected = numbers(config, 1, 2);
  ASSERT_EQ(expected.size(), 3U);  // start and 2 steps
  EXPECT_EQ(numbers(config, 2, 1), expected);
  EXPECT_EQ(numbers(with_strategy(config, {"full_shard", "host", "root"}), 4, 1), expected);
  EXPECT_EQ(numbers(with_strategy(config, {"hybrid_shard", "2", "block"}), 4, 1), expected);
  EXPECT_EQ(numbers(with_strategy(config, {"no_shard", "host", "block"}), 2, 1), expected);
  EXPECT_EQ(numbers(with_strategy(config, {"shard_grad_op", "host", "block"}), 4, 1), expected);
}

TEST_F(Promise, ReducingEveryMicroBatchIsAnotherRecordThatKeepsItsBits) {
  JobConfig config = test::model_t(5);
  config.batch.global_batch_size = 16;
  const std::vector<std::string> once = numbers(config, 2, 1);
  config.fsdp.reduce = "every_micro_batch";
  const std::vector<std::string> every = numbers(config, 1, 1);
  EXPECT_NE(every, once) << "two micro-batches per lane are added in another order";
  EXPECT_EQ(numbers(config, 4, 1), every);
  config.fsdp.reshard_after_forward = "false";
  config.fsdp.wrap = "root";
  EXPECT_EQ(numbers(config, 2, 2), every);
}

TEST_F(Promise, OneMicroBatchPerLaneIsReducedTheSameEitherWay) {
  JobConfig config = test::model_t(5);
  const std::vector<std::string> once = numbers(config, 2, 1);
  config.fsdp.reduce = "every_micro_batch";
  EXPECT_EQ(numbers(config, 2, 1), once);
}

TEST_F(Promise, FrozenParametersStayAndTheOthersKeepTheirBitsInEveryLayout) {
  JobConfig config = test::model_t(5);
  config.optimizer.groups = {{.match = "^block\\.0\\.", .frozen = true}, {.match = "norm", .frozen = true}};
  const std::vector<std::string> expected = numbers(config, 1, 1);
  EXPECT_NE(expected, numbers(test::model_t(5), 1, 1));
  EXPECT_EQ(numbers(config, 4, 1), expected);
  EXPECT_EQ(numbers(with_strategy(config, {"no_shard", "host", "block"}), 2, 1), expected);
  EXPECT_EQ(numbers(with_strategy(config, {"hybrid_shard", "2", "root"}), 4, 1), expected);
}

TEST_F(Promise, TheSameJobThreeTimesGivesTheSameBits) {
  const JobConfig config = test::model_t(5);
  const std::vector<std::string> expected = numbers(config, 2, 2);
  EXPECT_EQ(numbers(config, 2, 2), expected);
  EXPECT_EQ(numbers(config, 2, 2), expected);
}

// Rare rows of a large untied table: their moments decay until they would be denormal, which every thread must flush alike.
TEST_F(Promise, ThreadsChangeNoBitWhereMomentsFadeAway) {
  JobConfig config = test::llama_t(120);
  config.model.vocab_size = 2048;
  config.batch.global_batch_size = 4;
  config.batch.micro_batch_size = 4;
  config.reproducibility.lanes = 1;
  config.optimizer.betas = {0.3, 0.3};  // fade within the test's steps instead of within a thousand
  config.run.hash_every = 20;
  const std::vector<std::string> expected = numbers(config, 1, 1);
  EXPECT_EQ(numbers(config, 1, 2), expected);
  EXPECT_EQ(numbers(config, 1, 2), expected);
}

TEST_F(Promise, AnotherSeedGivesOtherBits) {
  JobConfig config = test::model_t(2);
  const std::vector<std::string> first = numbers(config, 1, 1);
  config.run.seed = 1;
  EXPECT_NE(numbers(config, 1, 1), first);
}

TEST_F(Promise, AnotherOrderOfLanesIsAnotherRecord) {
  // Two numerics records of one job differ in bits somewhere within some steps: the test would notice if lanes were ignored.
  JobConfig config = test::model_t(10);
  const std::vector<std::string> four = numbers(config, 1, 1);
  config.reproducibility.lanes = 1;
  EXPECT_NE(numbers(config, 1, 1), four);
}

TEST_F(Promise, ClippingAndEvaluationChangeNoBitAcrossRanks) {
  JobConfig config = test::model_t(6);
  config.optimizer.clip_norm = 0.05;
  config.optimizer.weight_decay = 0.1;
  config.run.evaluate_every = 2;
  config.data.validation = {
      test::write_tokens(directory_ / "validation.bin", 16 * 11 + 1, 64, 9)};  // 11 windows: the last batch is filled
  const std::vector<std::string> expected = numbers(config, 1, 1);
  EXPECT_EQ(numbers(config, 2, 1), expected);
  EXPECT_EQ(numbers(config, 4, 1), expected);
}

TEST_F(Promise, EvaluationChangesNoTrainingNumber) {
  JobConfig config = test::model_t(6);
  const std::vector<std::string> plain = numbers(config, 2, 1);
  config.run.evaluate_every = 1;
  config.data.validation = {test::write_tokens(directory_ / "validation.bin", 16 * 5 + 1, 64, 9)};
  std::vector<std::string> steps;
  for (const std::string& line : numbers(config, 2, 1)) {
    if (line.find("validation") == std::string::npos) steps.push_back(line);
  }
  EXPECT_EQ(steps, plain);
}

}  // namespace
}  // namespace tessera
