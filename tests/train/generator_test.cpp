// Text from checkpoints on ranks as threads.
#include "runtime/train/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/catalog.h"
#include "checkpoint/file_system.h"
#include "fsdp/policy.h"
#include "fsdp/schedule.h"
#include "parallel/threads/threads_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/load_weights.h"
#include "runtime/train/trainer.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using Tokens = std::vector<std::uint32_t>;

// A job that has trained some steps, and its checkpoint.
class Generate : public ::testing::Test {
 protected:
  void train(JobConfig config) {
    config.data.train = {{test::write_tokens(directory / "train.bin", 2000, 64), 1.0}};
    config.checkpoint.every = *config.run.steps;
    config.optimizer.learning_rate = 0.03;  // far from the initial weights, whose logits are all alike
    test::run_job(config, 2, 1, directory / "run");
    config_ = config;
    folder_ = resolve_checkpoint(*make_posix_file_system(), directory / "run");
  }

  // On so many ranks: what each of them gives.
  std::vector<Tokens> generate_on(int world, const std::vector<Tokens>& prompts, const SamplerOptions& options) const {
    JobConfig config;
    config.model = config_.model;
    config.batch = {.global_batch_size = world, .micro_batch_size = 1};
    const auto factories = make_threads_world(world);
    const ResolvedBatch batch = resolve(config, world);
    std::vector<Tokens> found(static_cast<std::size_t>(world));
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(world));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        try {
          CpuDevice device({.num_threads = 1});
          generate({.config = config,
                    .batch = batch,
                    .mesh = make_mesh(config.fsdp, batch, 0),
                    .placement = Placement::canonical(world),
                    .world_rank = rank,
                    .factory = *factories[r],
                    .device = device,
                    .device_memory = budget_,
                    .checkpoint = folder_,
                    .instruction_set = current_isa(),
                    .prompts = prompts,
                    .options = options,
                    .on_token = [&](std::size_t, std::uint32_t token) { found[r].push_back(token); }});
        } catch (...) {
          failures[r] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
    return found;
  }

  // The same by another way: the whole context each time, whatever its length, and the largest logit, lowest id among equals.
  Tokens likeliest(Tokens text, std::int64_t count) const {
    Tokens added;
    JobConfig config = config_;
    config.batch = {.global_batch_size = 1, .micro_batch_size = 1};
    config.reproducibility.lanes = 1;
    test::run_ranks(config, 1, [&](test::RankParts& parts) {
      load_weights(*make_posix_file_system(), folder_, config.model, parts.model, parts.streams.compute);
      const StepProgram program =
          build_token_program(parts.model.model(), parts.model.unit_specs(), token_schedule(parts.plan.schedule));
      const std::int64_t seq_len = config.model.seq_len;
      std::vector<float> logits(static_cast<std::size_t>(config.model.vocab_size));
      for (std::int64_t n = 0; n < count; ++n) {
        StepBatch batch;
        batch.micro_batch_size = 1;
        batch.seq_len = seq_len;
        const std::size_t seen = std::min(text.size(), static_cast<std::size_t>(seq_len));
        batch.tokens.assign(text.end() - static_cast<std::ptrdiff_t>(seen), text.end());
        batch.tokens.resize(static_cast<std::size_t>(seq_len), 63);  // what comes later is not seen
        batch.targets.assign(batch.tokens.size(), -100);
        parts.executor.logits(program, {.step = 1, .batch = &batch, .logits_row = static_cast<std::int64_t>(seen) - 1},
                              logits);
        const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
        added.push_back(static_cast<std::uint32_t>(best));
        text.push_back(added.back());
      }
    });
    return added;
  }

  test::TemporaryDirectory directory;
  JobConfig config_;
  std::string folder_;
  MemoryBudget budget_;
};

const std::vector<Tokens> kPrompt = {{5, 9, 60}};

TEST_F(Generate, GivesTheSameTokensOnEveryNumberOfRanks) {
  train(test::llama_t(5));
  const SamplerOptions options{.num_tokens = 40, .sampling = {.top_k = 20, .seed = 3}};
  const std::vector<Tokens> alone = generate_on(1, kPrompt, options);
  ASSERT_EQ(alone[0].size(), 40U);
  for (const int world : {2, 4}) {
    for (const Tokens& tokens : generate_on(world, kPrompt, options)) EXPECT_EQ(tokens, alone[0]) << world;
  }
  EXPECT_EQ(generate_on(1, kPrompt, options), alone);
  SamplerOptions other = options;
  other.sampling.seed = 4;
  EXPECT_NE(generate_on(1, kPrompt, other), alone);
}

// Longer than seq_len 16: the window slides.
TEST_F(Generate, TemperatureZeroIsTheLikeliestTokenEachTime) {
  for (const JobConfig& job : {test::llama_t(5), test::model_t(5)}) {
    std::filesystem::remove_all(directory / "run");
    train(job);
    const Tokens expected = likeliest(kPrompt[0], 30);
    EXPECT_EQ(generate_on(2, kPrompt, {.num_tokens = 30, .sampling = {.temperature = 0}})[0], expected);
  }
}

TEST_F(Generate, EndsAtAStopTokenAndGoesOnWithTheNextPrompt) {
  train(test::model_t(5));
  const Tokens first = likeliest({5, 9, 60}, 12), second = likeliest({1}, 12);
  const std::uint32_t stop = first[4];
  const auto until_stop = [&](const Tokens& tokens) {
    const auto at = std::ranges::find(tokens, stop);
    return Tokens(tokens.begin(), at == tokens.end() ? at : at + 1);
  };
  Tokens expected = until_stop(first);
  ASSERT_LE(expected.size(), 5U);
  for (const std::uint32_t token : until_stop(second)) expected.push_back(token);
  EXPECT_EQ(
      generate_on(1, {{5, 9, 60}, {1}}, {.num_tokens = 12, .sampling = {.temperature = 0}, .stop_tokens = {stop}})[0],
      expected);
}

TEST_F(Generate, ChoosesAmongTheTokenizersIdsAlone) {
  train(test::model_t(5));
  const Tokens tokens =
      generate_on(1, kPrompt, {.num_tokens = 60, .sampling = {.temperature = 5}, .num_choices = 7})[0];
  ASSERT_EQ(tokens.size(), 60U);
  for (const std::uint32_t token : tokens) EXPECT_LT(token, 7U);
}

TEST_F(Generate, ADamagedCheckpointEndsEveryRankWithItsName) {
  train(test::model_t(2));
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
    file.seekp(2000);
    file.put('\x7f');
  }
  try {
    generate_on(2, kPrompt, {.num_tokens = 1});
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code, ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find(".safetensors"), std::string::npos) << error.what();
  }
}

TEST_F(Generate, WhatARankCannotHoldIsRefusedBeforeItIsRead) {
  train(test::model_t(2));
  budget_ = {.bytes = 1000, .source = "a test"};
  try {
    generate_on(1, kPrompt, {.num_tokens = 1});
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code, ExitCode::kDevice);
    EXPECT_NE(std::string(error.what()).find("and has 1 KiB (a test)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
