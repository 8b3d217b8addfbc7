// What the ledger predicts is what the allocator hands out: for every policy, on ranks as threads, to the byte.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/train/plan.h"
#include "runtime/train/sampler.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

// One step of this rank, every instruction of it, and what it allocated at most.
MemoryStats measured_step(test::RankParts& parts) {
  const std::int64_t tokens_per_rank = parts.batch.micro_batches_per_rank * parts.config.batch.micro_batch_size * parts.config.model.seq_len;
  StepBatch batch;
  batch.micro_batch_size = parts.config.batch.micro_batch_size;
  batch.seq_len = parts.config.model.seq_len;
  batch.tokens.assign(static_cast<std::size_t>(tokens_per_rank), 3);
  batch.targets.assign(static_cast<std::size_t>(tokens_per_rank), 5);
  Allocator& allocator = parts.device.allocator();
  for (std::int64_t step = 1; step <= 2; ++step) {
    allocator.reset_peaks();
    parts.executor.train(parts.plan.program, {.step = step, .batch = &batch, .learning_rate = 1e-3});
  }
  return allocator.stats();
}

std::string name_of(const JobConfig& c, int world) {
  return fmt::format("{}, {} ranks, {} lanes, {}, shard_size {}, wrap {}, {}, depth {}, limit {}, reshard {}, reduce {}", c.run.name, world,
                     c.reproducibility.lanes.value_or(0), c.fsdp.strategy, c.fsdp.shard_size, c.fsdp.wrap,
                     c.fsdp.backward_prefetch, c.fsdp.forward_prefetch_depth, c.fsdp.max_inflight_all_gathers,
                     c.fsdp.reshard_after_forward, c.fsdp.reduce);
}

void expect_exact(const JobConfig& config, int world) {
  test::run_ranks(config, world, [&](test::RankParts& parts) {
    const MemoryStats measured = measured_step(parts);
    const Ledger& ledger = parts.plan.memory;
    const std::string where = fmt::format("{}: rank {}", name_of(config, world), parts.rank);
    EXPECT_EQ(ledger.peak(), measured.total.allocated_peak) << where;
    EXPECT_EQ(ledger.at_peak, measured.at_peak) << where;
    EXPECT_EQ(total_of(ledger.at_rest), measured.total.allocated) << where;
    for (std::size_t c = 0; c < ledger.peaks.size(); ++c) {
      EXPECT_EQ(ledger.peaks[c], measured.by_category[c].allocated_peak)
          << where << ", " << name_of(static_cast<MemoryCategory>(c));
    }
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

TEST(Memory, EveryStrategyWrapAndReductionIsPredictedToTheByte) {
  for (const JobConfig& model : {test::model_t(1), test::llama_t(1)}) {
    for (const int world : {1, 2, 4}) {
      for (const std::int64_t lanes_per_rank : {1, 2, 4}) {
        for (const FsdpConfig& fsdp : strategies(world)) {
          for (const char* wrap : {"block", "root", "2"}) {
            for (const char* reduce : {"once", "every_micro_batch"}) {
              JobConfig config = small(model, world * lanes_per_rank);
              config.fsdp = fsdp;
              config.fsdp.wrap = wrap;
              config.fsdp.reduce = reduce;
              expect_exact(config, world);
            }
          }
        }
      }
    }
  }
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
    for (const char* frozen : {"^block", "^block.0", "^embedding", "norm"}) {
      JobConfig config = small(test::model_t(1), 4);
      config.fsdp.strategy = strategy;
      config.optimizer.groups = {{.match = frozen, .frozen = true}};
      expect_exact(config, 2);
    }
  }
}

TEST(Memory, AWideModelIsPredictedToTheByte) {
  JobConfig config = test::model_w(1);
  config.model.seq_len = 64;
  for (const char* wrap : {"block", "root"}) {
    config.fsdp.wrap = wrap;
    expect_exact(config, 2);
  }
}

}  // namespace
}  // namespace tessera
