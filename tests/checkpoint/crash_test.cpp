// C1: a save that ends at any of its calls, on any rank, leaves the checkpoint before it or its own; nothing between.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/catalog.h"
#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/checkpoint/thread_ranks.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::FaultKind;
using test::FaultyFileSystem;
using test::SyntheticState;

constexpr int kCrashRanks = 2;

class Crash : public testing::Test {
 protected:
  // All ranks save `step`; call `call` of rank `victim` goes wrong (0: none does). Returns the calls of that rank, and how each rank ended.
  std::vector<std::string> save(const std::string& directory, std::int64_t step, int victim, std::int64_t call,
                                FaultKind kind, std::vector<std::string>& messages) {
    std::vector<std::string> calls;
    messages = test::run_ranks(kCrashRanks, [&](test::ThreadRanks& threads, int rank) {
      FaultyFileSystem files;
      if (rank == victim) files.plan(call, kind);
      test::ThreadExchange ranks(threads, rank, [&] { files.check_alive(); });
      SyntheticState state(model_, "block", kCrashRanks, rank);
      state.fill(step);
      try {
        test::save(files, ranks, {.directory = directory, .retention = {.keep_latest = 2}}, step, state.sources());
      } catch (...) {
        if (rank == victim) calls = files.calls();
        throw;
      }
      if (rank == victim) calls = files.calls();
    });
    return calls;
  }

  std::int64_t num_wrong(const std::string& folder, std::int64_t step) {
    SyntheticState loaded(model_, "root", 1, 0);
    SoloExchange solo;
    CheckpointReader::open(*files_, folder).load(solo, loaded.targets());
    return loaded.num_wrong(step);
  }

  test::TemporaryDirectory directory_;
  const ModelSpec model_ = test::tiny_model(1, 67, 12);
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

class EveryCall : public Crash, public testing::WithParamInterface<std::tuple<int, FaultKind>> {};

// Steps 1 and 2 are there and step 1 is to go once step 3 is durable.
TEST_P(EveryCall, OfASaveMayBeTheLast) {
  const auto [victim, kind] = GetParam();
  std::vector<std::string> messages;
  std::int64_t num_calls = 1;
  for (std::int64_t call = 1; call <= num_calls; ++call) {
    const std::string directory = directory_ / std::to_string(call);
    save(directory, 1, -1, 0, kind, messages);
    save(directory, 2, -1, 0, kind, messages);
    const std::vector<std::string> calls = save(directory, 3, victim, call, kind, messages);
    if (static_cast<std::int64_t>(calls.size()) < call) break;  // the save has fewer calls: all were walked
    num_calls = call + 1;
    const std::string where =
        fmt::format("rank {}, call {}: {}", victim, call, calls[static_cast<std::size_t>(call) - 1]);

    // The next start.
    const LatestCheckpoint latest = find_latest(*files_, directory);
    ASSERT_TRUE(latest.step) << where;
    ASSERT_TRUE(*latest.step == 2 || *latest.step == 3) << where;
    EXPECT_EQ(num_wrong(latest.folder, *latest.step), 0) << where;
    const bool saved = messages[0].empty() && messages[1].empty();
    EXPECT_TRUE(!saved || *latest.step == 3) << where;
    if (kind == FaultKind::kFail) {
      EXPECT_EQ(messages[0], messages[1]) << where << ": all ranks say the same";
      EXPECT_TRUE(latest.skipped.empty()) << where << ": nothing is left behind";
    }
    // What was begun and did not become a checkpoint is named.
    for (const DirectoryEntry& entry : files_->list(directory)) {
      if (!step_of_unfinished(entry.name)) continue;
      ASSERT_EQ(latest.skipped.size(), 1U) << where;
      EXPECT_EQ(latest.skipped[0], (SkippedCheckpoint{entry.name, "the save of step 3 did not end"})) << where;
    }

    remove_leftovers(*files_, directory);
    for (const DirectoryEntry& entry : files_->list(directory)) EXPECT_TRUE(step_of_folder(entry.name)) << where;
    const std::int64_t next = *latest.step + 1;
    save(directory, next, -1, 0, kind, messages);
    EXPECT_EQ(messages, std::vector<std::string>(kCrashRanks)) << where;
    EXPECT_EQ(find_latest(*files_, directory).step, next) << where;
  }
  // Rank 0: folder, shard (create, write, sync, close), manifest (the same), sync, rename, sync; retention: rename, sync, remove. Rank 1: its shard.
  EXPECT_EQ(num_calls - 1, victim == 0 ? 15 : 4);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryCall,
                         testing::Combine(testing::Values(0, 1),
                                          testing::Values(FaultKind::kFail, FaultKind::kKill, FaultKind::kTornKill)));

TEST_F(Crash, ACheckpointThatLostAFileIsSkippedAloud) {
  const std::string directory = directory_ / "checkpoints";
  std::vector<std::string> messages;
  for (const std::int64_t step : {1, 2}) save(directory, step, -1, 0, FaultKind::kFail, messages);
  const std::string shard = directory + "/step-00000002/shard-00001-of-00002.safetensors";
  files_->remove(shard);
  const LatestCheckpoint latest = find_latest(*files_, directory);
  EXPECT_EQ(latest.step, 1);
  EXPECT_EQ(latest.skipped,
            (std::vector<SkippedCheckpoint>{{"step-00000002", shard + ": cannot open: No such file or directory"}}));
  EXPECT_EQ(find_latest(*files_, directory, 1).step, std::nullopt);

  // A run that resumed at step 1 reaches step 2 again.
  const std::string aside = set_aside(*files_, directory, 2);
  EXPECT_TRUE(aside.starts_with(".set-aside-00000002-"));
  save(directory, 2, -1, 0, FaultKind::kFail, messages);
  EXPECT_EQ(find_latest(*files_, directory).step, 2);
  EXPECT_TRUE(remove_leftovers(*files_, directory).empty()) << "what was set aside is the user's";
}

TEST_F(Crash, ACheckpointOfAnotherStepsNameIsSkippedAloud) {
  const std::string directory = directory_ / "checkpoints";
  std::vector<std::string> messages;
  save(directory, 1, -1, 0, FaultKind::kFail, messages);
  files_->rename(directory + "/step-00000001", directory + "/step-00000009");
  const LatestCheckpoint latest = find_latest(*files_, directory);
  EXPECT_FALSE(latest.step);
  EXPECT_EQ(
      latest.skipped,
      (std::vector<SkippedCheckpoint>{{"step-00000009", directory + "/step-00000009: its manifest is of step 1"}}));
}

TEST(Folders, AreNamedByStep) {
  EXPECT_EQ(step_folder_name(120), "step-00000120");
  EXPECT_EQ(saving_folder_name(120, 0x5f0c2e6a91d4b7c3ULL), ".saving-00000120-5f0c2e6a91d4b7c3");
  EXPECT_EQ(step_of_folder("step-00000120"), 120);
  EXPECT_EQ(step_of_folder("step-1234567890"), 1234567890);
  for (const char* other : {"step-120", "step-000000120", "step-", "step-00000120.tmp", "step--0000001", "config.yaml"})
    EXPECT_EQ(step_of_folder(other), std::nullopt) << other;
}

TEST(Catalog, ADirectoryThatIsNotThereHasNoCheckpoints) {
  const auto files = make_posix_file_system();
  const LatestCheckpoint latest = find_latest(*files, "/nonexistent/checkpoints");
  EXPECT_FALSE(latest.step);
  EXPECT_TRUE(latest.skipped.empty());
}

}  // namespace
}  // namespace tessera
