// What the ledger predicts is what the allocator hands out: for every policy, on ranks as threads, to the byte.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/train/memory_budget.h"
#include "runtime/train/plan.h"
#include "runtime/train/reporter.h"
#include "runtime/train/sampler.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

// Sequences of one token for this rank's micro-batches.
StepBatch some_batch(const test::RankParts& parts) {
  const std::int64_t tokens_per_rank =
      parts.batch.micro_batches_per_rank * parts.config.batch.micro_batch_size * parts.config.model.seq_len;
  StepBatch batch;
  batch.micro_batch_size = parts.config.batch.micro_batch_size;
  batch.seq_len = parts.config.model.seq_len;
  batch.tokens.assign(static_cast<std::size_t>(tokens_per_rank), 3);
  batch.targets.assign(static_cast<std::size_t>(tokens_per_rank), 5);
  return batch;
}

// A step of this rank: what it allocated at most, and what it left. The second of two, which begins with what the first left.
MemoryStats measured_step(test::RankParts& parts) {
  const StepBatch batch = some_batch(parts);
  for (std::int64_t step = 1; step <= 2; ++step) {
    parts.device.allocator().reset_peaks();
    parts.executor.train(parts.plan.program, {.step = step, .batch = &batch, .learning_rate = 1e-3});
  }
  return parts.device.allocator().stats();
}

std::string name_of_job(const JobConfig& c, int world) {
  return fmt::format(
      "{}, {} ranks, {} lanes, {}, shard_size {}, wrap {}, {}, depth {}, limit {}, reshard {}, reduce {}", c.run.name,
      world, c.reproducibility.lanes.value_or(0), c.fsdp.strategy, c.fsdp.shard_size, c.fsdp.wrap,
      c.fsdp.backward_prefetch, c.fsdp.forward_prefetch_depth, c.fsdp.max_inflight_all_gathers,
      c.fsdp.reshard_after_forward, c.fsdp.reduce);
}

void expect_equal(const Ledger& ledger, const MemoryStats& measured, const std::string& where) {
  EXPECT_EQ(ledger.peak(), measured.total.allocated_peak) << where;
  EXPECT_EQ(ledger.at_peak, measured.at_peak) << where;
  EXPECT_EQ(total_of(ledger.at_rest), measured.total.allocated) << where;
  for (std::size_t c = 0; c < ledger.peaks.size(); ++c) {
    EXPECT_EQ(ledger.peaks[c], measured.by_category[c].allocated_peak)
        << where << ", " << name_of(static_cast<MemoryCategory>(c));
  }
}

void expect_exact(const JobConfig& config, int world) {
  test::run_ranks(config, world, [&](test::RankParts& parts) {
    expect_equal(parts.plan.memory, measured_step(parts),
                 fmt::format("{}: rank {}", name_of_job(config, world), parts.rank));
  });
}

// With four blocks, so that wrap 2 makes two units beside the root and prefetching has something to run ahead to.
JobConfig small(JobConfig config, std::int64_t lanes) {
  config.model.num_layers = 4;
  config.reproducibility.lanes = lanes;
  config.batch.global_batch_size = 2 * lanes * config.batch.micro_batch_size;  // each lane adds two micro-batches
  return config;
}

std::vector<FsdpConfig> strategies(int world) {
  std::vector<FsdpConfig> out;
  for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"}) out.push_back({.strategy = strategy});
  for (const char* reshard : {"false", "true"}) out.push_back({.reshard_after_forward = reshard});
  for (const char* size : {"1", "2", "host"}) {
    if (world > 1) out.push_back({.strategy = "hybrid_shard", .shard_size = size});
  }
  return out;
}

void expect_strategies_exact(const JobConfig& model, int world, const std::vector<std::int64_t>& lanes_per_rank,
                             const std::vector<const char*>& wraps) {
  for (const std::int64_t lanes : lanes_per_rank) {
    for (const FsdpConfig& fsdp : strategies(world)) {
      for (const char* wrap : wraps) {
        for (const char* reduce : {"once", "every_micro_batch"}) {
          JobConfig config = small(model, world * lanes);
          config.fsdp = fsdp;
          config.fsdp.wrap = wrap;
          config.fsdp.reduce = reduce;
          expect_exact(config, world);
        }
      }
    }
  }
}

class MemoryOfRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MemoryOfRanks, testing::Values(1, 2, 4));

TEST_P(MemoryOfRanks, EveryStrategyWrapReductionAndNumberOfLanesIsPredictedToTheByte) {
  expect_strategies_exact(test::model_t(1), GetParam(), {1, 2, 4}, {"block", "root", "2"});
}

TEST_P(MemoryOfRanks, EveryStrategyOfTheLlamaFamilyIsPredictedToTheByte) {
  expect_strategies_exact(test::llama_t(1), GetParam(), {2}, {"block", "root"});
}

TEST(Memory, EveryPrefetchPolicyIsPredictedToTheByte) {
  for (const int world : {2, 4}) {
    for (const char* prefetch : {"backward_pre", "backward_post", "none"}) {
      for (const std::int64_t depth : {0, 1, 3}) {
        for (const std::int64_t limit : {1, 2, 4}) {
          for (const char* reshard : {"auto", "false"}) {
            JobConfig config = small(test::model_t(1), world);
            config.fsdp.backward_prefetch = prefetch;
            config.fsdp.forward_prefetch_depth = depth;
            config.fsdp.max_inflight_all_gathers = limit;
            config.fsdp.reshard_after_forward = reshard;
            expect_exact(config, world);
          }
        }
      }
    }
  }
}

TEST(Memory, FrozenUnitsHaveNoMomentsAndTheirGradientsGo) {
  for (const char* strategy : {"full_shard", "no_shard"}) {
    for (const char* reduce : {"once", "every_micro_batch"}) {
      for (const char* frozen : {"^block", "^block.0", "^embedding", "norm", "."}) {
        JobConfig config = small(test::model_t(1), 4);
        config.fsdp.strategy = strategy;
        config.fsdp.reduce = reduce;
        config.optimizer.groups = {{.match = frozen, .frozen = true}};
        expect_exact(config, 2);
      }
    }
  }
}

TEST(Memory, AWideModelIsPredictedToTheByte) {
  JobConfig config = test::model_w(1);
  config.model.seq_len = 64;
  config.batch.global_batch_size = 4;
  config.batch.micro_batch_size = 1;
  expect_exact(config, 2);
}

TEST(Memory, EvaluationsAndGeneratedTokensArePredictedToTheByte) {
  for (JobConfig config : {test::model_t(1), test::llama_t(1)}) {
    config.model.seq_len = 64;
    config.run.evaluate_every = config.run.sample_every = 1;
    config.data.validation = {"validation.bin"};
    test::run_ranks(config, 2, [&](test::RankParts& parts) {
      Allocator& allocator = parts.device.allocator();
      const StepBatch batch = some_batch(parts);
      allocator.reset_peaks();
      parts.executor.evaluate(parts.plan.evaluation_program, {.batch = &batch});
      expect_equal(parts.plan.evaluation_memory.value(), allocator.stats(), config.run.name + " evaluates");

      allocator.reset_peaks();
      parts.executor.evaluate(parts.plan.first_loss_program, {.batch = &batch});
      expect_equal(parts.plan.first_loss_memory, allocator.stats(), config.run.name + " certifies");

      Sampler sampler(config, parts.model, parts.communicators, parts.device, parts.streams, parts.plan.schedule,
                      nullptr);
      allocator.reset_peaks();
      sampler.generate({1}, {.num_tokens = 40}, 0);  // contexts of 16, 32 and 64
      const MemoryStats measured = allocator.stats();
      EXPECT_EQ(parts.plan.token_memory.value().peak(), measured.total.allocated_peak) << config.run.name;
      EXPECT_EQ(total_of(parts.plan.memory.at_rest), measured.total.allocated) << "a sampler keeps nothing";
    });
  }
}

class MemoryRun : public testing::Test {
 protected:
  JobConfig with_data(JobConfig config) {
    config.data.train = {{test::write_tokens(directory_ / "tokens.bin", 4001, 64), 1.0}};
    return config;
  }
  static Plan plan_of(const JobConfig& config, int world) {
    const ResolvedBatch batch = resolve(config, world);
    return make_plan(config, batch, make_mesh(config.fsdp, batch, 2), 0, 1);
  }
  // What a job that may not use more than `limit` bytes ends with.
  std::string refusal(JobConfig config, int world, std::int64_t limit) {
    config.device.memory_limit = std::to_string(limit);
    const std::vector<std::string> lines = test::run_to_errors(with_data(config), world, directory_ / "refused");
    EXPECT_FALSE(std::filesystem::exists(directory_ / "refused")) << "it is refused before it leaves a file";
    return lines.front();
  }

  test::TemporaryDirectory directory_;
};

TEST_F(MemoryRun, MetricsAndPlanShowTheSamePeak) {
  for (const char* strategy : {"full_shard", "no_shard"}) {
    JobConfig config = with_data(test::model_t(2));
    config.fsdp.strategy = strategy;
    const std::string path = directory_ / strategy;
    const std::vector<std::string> metrics = test::run_job(config, 2, 1, path);
    const auto peak = nlohmann::json::parse(metrics.back())["memory_allocated_peak"].get<std::int64_t>();
    EXPECT_EQ(peak, plan_of(config, 2).peak().bytes);
    const nlohmann::json plan = nlohmann::json::parse(std::ifstream(path + "/plan.json"));
    EXPECT_EQ(peak, plan["predicted_bytes"]);
    EXPECT_EQ(peak, plan["memory"]["step"]["peak"]);
  }
}

TEST_F(MemoryRun, AJobThatCannotFitIsRefusedWithBothFiguresAndTheCheapestChange) {
  JobConfig config = test::model_t(1);
  const std::int64_t need = plan_of(config, 2).peak().bytes;
  const std::string line = refusal(config, 2, need - 1);
  EXPECT_TRUE(line.starts_with(fmt::format("6 memory: a rank needs {} bytes (at ", need))) << line;
  EXPECT_NE(line.find(fmt::format(") and has {} bytes (device.memory_limit); hint: fsdp.", need - 1)),
            std::string::npos)
      << line;
}

TEST_F(MemoryRun, AJobThatNeedsAllItMayHaveRuns) {
  JobConfig config = with_data(test::model_t(2));
  config.device.memory_limit = std::to_string(plan_of(config, 2).peak().bytes);
  EXPECT_EQ(test::run_to_errors(config, 2, directory_ / "run"), std::vector<std::string>(2));
}

TEST_F(MemoryRun, WhatTheHintNamesFits) {
  JobConfig config = test::model_t(1);
  config.model.num_layers = 6;
  config.fsdp.wrap = "root";
  JobConfig fixed = config;
  fixed.fsdp.wrap = "block";
  const std::int64_t limit = plan_of(fixed, 4).peak().bytes;
  ASSERT_LT(limit, plan_of(config, 4).peak().bytes);
  EXPECT_EQ(cheapest_fix(config, plan_of(config, 4), limit, 1),
            fmt::format("fsdp.wrap: block needs {}", format_bytes(limit)));
}

TEST_F(MemoryRun, ChangesThatKeepEveryBitComeFirst) {
  JobConfig config = test::model_t(1);
  config.model.num_layers = 6;
  config.fsdp.strategy = "no_shard";
  JobConfig sharded = config;
  sharded.fsdp.strategy = "full_shard";
  const std::int64_t limit = plan_of(sharded, 4).peak().bytes;
  EXPECT_EQ(cheapest_fix(config, plan_of(config, 4), limit, 1),
            fmt::format("fsdp.strategy: full_shard needs {}", format_bytes(limit)));
}

TEST_F(MemoryRun, AChangeOfBitsSaysSo) {
  JobConfig config = test::model_t(1);
  config.model.seq_len = 256;  // activations outweigh the rest
  config.batch.micro_batch_size = 2;
  config.batch.global_batch_size = 8;
  JobConfig fixed = config;
  fixed.batch.micro_batch_size = 1;
  const std::int64_t limit = plan_of(fixed, 4).peak().bytes;
  EXPECT_EQ(cheapest_fix(config, plan_of(config, 4), limit, 1),
            fmt::format("batch.micro_batch_size: 1 needs {} (sums in another order: other bits)", format_bytes(limit)));
}

TEST_F(MemoryRun, WhereNoKeyHelpsMoreRanksMay) {
  JobConfig config = test::model_t(1);
  config.model.num_layers = 12;
  config.fsdp.backward_prefetch = "none";
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 4;
  const std::int64_t limit = plan_of(config, 4).peak().bytes;
  const std::string hint = cheapest_fix(config, plan_of(config, 1), limit, 1);
  EXPECT_EQ(hint, fmt::format("4 ranks with as much memory need {} each", format_bytes(limit)));
}

TEST_F(MemoryRun, WhereNothingFitsTheLeastIsNamed) {
  const JobConfig config = test::model_t(1);
  const std::string hint = cheapest_fix(config, plan_of(config, 2), 1000, 1);
  EXPECT_TRUE(hint.starts_with(
      "none of the changes tried (one or two keys of fsdp and batch, or more ranks) fits; the least is "))
      << hint;
}

TEST(MemoryBudget, IsTheSmallerOfTheDevicesAndTheConfigs) {
  const MemoryBudget device{1000, "1000 bytes of a host"};
  EXPECT_EQ(memory_budget({}, device).source, device.source);
  EXPECT_EQ(memory_budget({.memory_limit = "999"}, device).bytes, 999);
  EXPECT_EQ(memory_budget({.memory_limit = "999"}, device).source, "device.memory_limit");
  EXPECT_EQ(memory_budget({.memory_limit = "1001"}, device).bytes, 1000);
  EXPECT_EQ(memory_budget({.memory_limit = "1001"}, {}).bytes, 1001) << "nobody knows what the device has";
  EXPECT_EQ(memory_budget({}, {}).bytes, 0);
}

}  // namespace
}  // namespace tessera
