#include "checkpoint/load_latest.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "checkpoint/folders.h"
#include "checkpoint/model_check.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/checkpoint/thread_ranks.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr int kLatestRanks = 3;

class LoadLatest : public testing::Test {
 protected:
  void save(std::int64_t step) { test::save_layout(*files_, checkpoints_, model_, "block", 2, 1, step); }
  void flip_last_bit(const std::string& path) const {
    std::string bytes = read_small_file(*files_, path, 1 << 30);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  // Loads on all ranks, expecting the state of `step` (−1: none); what was skipped.
  std::vector<SkippedCheckpoint> load(std::int64_t step) {
    std::vector<SkippedCheckpoint> skipped;
    const auto messages = test::run_ranks(kLatestRanks, [&](test::ThreadRanks& threads, int rank) {
      test::ThreadExchange ranks(threads, rank);
      test::SyntheticState state(model_, "root", kLatestRanks, rank);
      const LoadedCheckpoint loaded = load_latest(*files_, ranks, checkpoints_,
                                                  [&](const Manifest&, const std::string&) { return state.targets(); });
      EXPECT_EQ(loaded.manifest ? loaded.manifest->step : -1, step);
      EXPECT_TRUE(!loaded.manifest || state.num_wrong(step) == 0);
      if (rank == 0) skipped = loaded.skipped;
    });
    EXPECT_EQ(messages, std::vector<std::string>(kLatestRanks));
    return skipped;
  }

  test::TemporaryDirectory directory_;
  const ModelSpec model_ = test::tiny_model(2, 67, 12);
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  const std::string checkpoints_ = directory_ / "checkpoints";
};

TEST_F(LoadLatest, TakesTheNewest) {
  EXPECT_TRUE(load(-1).empty());
  save(1);
  save(2);
  EXPECT_TRUE(load(2).empty());
}

TEST_F(LoadLatest, FallsBackOverDamageAndSaysSo) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  const std::string shard = checkpoints_ + "/step-00000003/shard-00001-of-00002.safetensors";
  flip_last_bit(shard);
  files_->remove(checkpoints_ + "/step-00000002/manifest.json");
  files_->make_directory(checkpoints_ + "/" + saving_folder_name(4, 1));
  const std::vector<SkippedCheckpoint> skipped = load(1);
  ASSERT_EQ(skipped.size(), 3U);
  EXPECT_EQ(skipped[0].reason, "the save of step 4 did not end");
  EXPECT_EQ(skipped[1].folder, "step-00000003");
  EXPECT_NE(skipped[1].reason.find(shard + ": damaged in block 0 of 1"), std::string::npos) << skipped[1].reason;
  EXPECT_EQ(skipped[2].folder, "step-00000002");
  flip_last_bit(checkpoints_ + "/step-00000001/shard-00000-of-00002.safetensors");
  EXPECT_EQ(load(-1).size(), 4U) << "nothing loads, and every reason is given";
}

TEST_F(LoadLatest, WhatIsAcceptedUnreadIsNotRead) {
  save(1);
  save(2);
  flip_last_bit(checkpoints_ + "/step-00000002/shard-00001-of-00002.safetensors");
  SoloExchange solo;
  const LoadedCheckpoint loaded =
      load_latest(*files_, solo, checkpoints_, [](const Manifest&, const std::string&) { return std::nullopt; });
  EXPECT_EQ(loaded.manifest.value().step, 2);
  EXPECT_TRUE(loaded.skipped.empty());
}

TEST_F(LoadLatest, DamageIsToldFromWhatWasNeverComplete) {
  SoloExchange solo;
  const auto any = [](const Manifest&, const std::string&) { return std::nullopt; };
  files_->make_directory(checkpoints_);
  files_->make_directory(checkpoints_ + "/" + saving_folder_name(4, 1));
  const LoadedCheckpoint unfinished = load_latest(*files_, solo, checkpoints_, any);
  EXPECT_EQ(unfinished.skipped.size(), 1U);
  EXPECT_FALSE(unfinished.skipped_damage());
  save(3);
  files_->remove(checkpoints_ + "/step-00000003/manifest.json");
  const LoadedCheckpoint damaged = load_latest(*files_, solo, checkpoints_, any);
  EXPECT_FALSE(damaged.manifest);
  EXPECT_TRUE(damaged.skipped_damage());
}

TEST_F(LoadLatest, OneThatIsNamedIsLoadedOrRefusedOnAllRanks) {
  for (const std::int64_t step : {1, 2}) save(step);
  const std::string named = checkpoints_ + "/step-00000001";
  const auto load_it = [&](std::vector<std::string>& messages) {
    messages = test::run_ranks(kLatestRanks, [&](test::ThreadRanks& threads, int rank) {
      test::ThreadExchange ranks(threads, rank);
      test::SyntheticState state(model_, "root", kLatestRanks, rank);
      const LoadedCheckpoint loaded = load_named(
          *files_, ranks, named, [&](const Manifest&, const std::string&) { return std::optional(state.targets()); });
      EXPECT_EQ(loaded.folder, named);
      EXPECT_EQ(state.num_wrong(1), 0);
    });
  };
  std::vector<std::string> messages;
  load_it(messages);
  EXPECT_EQ(messages, std::vector<std::string>(kLatestRanks));
  flip_last_bit(named + "/shard-00001-of-00002.safetensors");
  load_it(messages);
  for (const std::string& message : messages) {
    EXPECT_NE(message.find(named + "/shard-00001-of-00002.safetensors: damaged in block 0 of 1"), std::string::npos)
        << message;
    EXPECT_EQ(message, messages[0]);
  }
}

TEST_F(LoadLatest, AnotherModelIsRefusedAndNothingOlderTried) {
  save(1);
  save(2);
  const auto messages = test::run_ranks(kLatestRanks, [&](test::ThreadRanks& threads, int rank) {
    test::ThreadExchange ranks(threads, rank);
    load_latest(
        *files_, ranks, checkpoints_,
        [&](const Manifest& manifest, const std::string& folder) -> std::optional<std::vector<TargetSlice>> {
          check_model(manifest, folder, {{"activation", "silu"}, {"norm", "layernorm"}}, {}, ExtraTensors::kIgnore);
          return std::nullopt;
        });
  });
  for (const std::string& message : messages)
    EXPECT_EQ(message, checkpoints_ + "/step-00000002: another model: activation: gelu saved, silu now");
}

}  // namespace
}  // namespace tessera
