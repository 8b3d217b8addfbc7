// Files that are appended to a run's data join when the epoch ends; what a run has read stays what it was.
#include "runtime/train/data_parts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/train/batch_loader.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/run_files.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Lines = std::vector<std::string>;

// Model T reads 8 windows of 16 tokens a batch. Files a and b hold 24 and 16 windows: 3 batches an epoch of a, 5 of both.
class AppendedData : public testing::Test {
 protected:
  AppendedData() {
    fs::create_directories(directory_ / "data");
    write("a.bin", 24, 1);
    config_.data.train = {{directory_ / "data/*.bin", 1.0}};
  }
  std::string write(const std::string& name, std::int64_t windows, std::uint64_t seed) const {
    return test::write_tokens(directory_ / "data" / name, windows * 16 + 1, 64, seed);
  }
  TokenDataset dataset() const { return TokenDataset(config_.data.train, 16, 64); }
  BatchLoader loader(std::vector<DataPart> parts) const {
    return {std::move(parts), config_.batch, resolve(config_, 1), 16, 0};
  }
  // Of the batches of a run that has these files from its first step.
  std::uint64_t digest_from_the_start(const TokenDataset& files, std::int64_t batch) const {
    return loader({make_data_part(files, config_, 0, 0)}).global_digest(batch);
  }
  // What a checkpoint after `batches` of a run with the files of now keeps.
  DataCursor cursor(const TokenDataset& files, std::int64_t batches) const {
    const DataPart part = make_data_part(files, config_, 0, 0);
    return {.next_batch = batches, .order_digest = part.order_digest, .files = files.file_list()};
  }
  Lines refused(const DataCursor& saved) const { return continue_data(saved, dataset(), config_).refused; }

  std::string fresh() { return directory_ / fmt::format("run{}", ++runs_); }
  ExitCode run(const JobConfig& config, int world, const std::string& path, int last_step) const {
    std::atomic<int> asked = 0;
    const int before = static_cast<int>(fs::exists(path) ? test::steps_of(path).size() : 0);
    return test::run_until(config, world, 1, path,
                           [&](int rank) { return rank == 0 && before + ++asked >= last_step; });
  }

  test::TemporaryDirectory directory_;
  JobConfig config_ = test::model_t(14);
  int runs_ = 0;
};

TEST_F(AppendedData, JoinsWithTheNextEpochAndThenIsReadAsIfItHadBeenThere) {
  const TokenDataset old = dataset();
  const DataCursor saved = cursor(old, 4);  // one batch into epoch 1
  write("b.bin", 16, 2);
  const TokenDataset all = dataset();
  const DataContinuation data = continue_data(saved, all, config_);
  EXPECT_EQ(data.refused, Lines{});
  EXPECT_EQ(data.appended, Lines{"b.bin"});
  ASSERT_EQ(data.parts.size(), 2U);
  const BatchLoader batches = loader(data.parts);
  for (const std::int64_t batch : {4, 5}) {
    EXPECT_EQ(batches.global_digest(batch), digest_from_the_start(old, batch));
    EXPECT_EQ(batches.epoch_of(batch), 1);
  }
  // Batch 6 is the first of epoch 2, which is batch 10 where all epochs have five.
  for (std::int64_t batch = 6; batch < 16; ++batch) {
    EXPECT_EQ(batches.global_digest(batch), digest_from_the_start(all, batch + 4));
    EXPECT_EQ(batches.epoch_of(batch), batch < 11 ? 2 : 3);
  }
  EXPECT_EQ(batches.batches_before_epoch(2), 6);
  EXPECT_EQ(batches.batches_before_epoch(3), 11);
  EXPECT_EQ(batches.part_of(5).dataset.file_list(), old.file_list());
  EXPECT_EQ(batches.part_of(6).order.first_batch(), 6);
}

TEST_F(AppendedData, BetweenTwoEpochsJoinsAtOnce) {
  const DataCursor saved = cursor(dataset(), 6);
  write("b.bin", 16, 2);
  const DataContinuation data = continue_data(saved, dataset(), config_);
  ASSERT_EQ(data.parts.size(), 1U);
  EXPECT_EQ(loader(data.parts).global_digest(6), digest_from_the_start(dataset(), 10));
}

TEST_F(AppendedData, MayStandInFrontOrInAnEntryOfItsOwn) {
  const TokenDataset old = dataset();
  const DataCursor saved = cursor(old, 1);
  write("0.bin", 8, 3);  // sorts before a.bin
  const std::string other = test::write_tokens(directory_ / "other.bin", 8 * 16 + 1, 64, 4);
  config_.data.train.push_back({other, 2.0});
  const DataContinuation data = continue_data(saved, dataset(), config_);
  EXPECT_EQ(data.refused, Lines{});
  EXPECT_EQ(data.appended, (Lines{"0.bin", "other.bin"}));
  ASSERT_EQ(data.parts.size(), 2U);
  EXPECT_EQ(data.parts[0].dataset.file_list(), old.file_list());
  EXPECT_EQ(data.parts[1].dataset.num_sequences(), 8 + 24 + 2 * 8);
}

TEST_F(AppendedData, ARunOfOneBatchTakesNoneIn) {
  config_.run.overfit_one_batch = true;
  const DataCursor saved = cursor(dataset(), 4);
  write("b.bin", 16, 2);
  const DataContinuation data = continue_data(saved, dataset(), config_);
  EXPECT_EQ(data.appended, Lines{});
  EXPECT_EQ(data.parts.size(), 1U);
}

TEST_F(AppendedData, FilesThatChangedMovedOrWentAreRefusedByName) {
  write("b.bin", 16, 2);
  const DataCursor saved = cursor(dataset(), 4);
  EXPECT_EQ(refused(saved), Lines{});
  write("b.bin", 17, 2);
  EXPECT_EQ(refused(saved), Lines{"b.bin has 273 tokens (llm.c u16), had 257 tokens (llm.c u16)"});
  write("b.bin", 16, 9);
  EXPECT_EQ(refused(saved), Lines{"what they hold, or their weights, has changed"});
  fs::remove(directory_ / "data/b.bin");
  EXPECT_EQ(refused(saved), Lines{"b.bin is gone"});
  write("b.bin", 16, 2);
  config_.data.train = {{directory_ / "data/b.bin", 1.0}, {directory_ / "data/a.bin", 1.0}};
  EXPECT_EQ(refused(saved), Lines{"a.bin stands elsewhere in the order"});
  config_.data.train = {{directory_ / "data/*.bin", 2.0}};
  EXPECT_EQ(refused(saved), Lines{"what they hold, or their weights, has changed"});
}

// What was read is not known by batches any more, but the files have names and sizes.
TEST_F(AppendedData, FilesThatWentAreRefusedWhereTheOrderMayChange) {
  write("b.bin", 16, 2);
  const std::string path = fresh();
  EXPECT_EQ(run(config_, 1, path, 4), ExitCode::kStopped);
  config_.run.seed = 7;
  const Lines allowed = {"run.seed"};
  fs::rename(directory_ / "data/b.bin", directory_ / "data/c.bin");
  const std::string refusal = test::run_to_errors(config_, 1, path, allowed).front();
  EXPECT_NE(refusal.find("data.train: its files are not those of the saved run: b.bin is gone; hint"),
            std::string::npos)
      << refusal;
  EXPECT_EQ(test::run_to_errors(config_, 1, path, {"run.seed", "data.train"}), Lines{""});
  fs::rename(directory_ / "data/c.bin", directory_ / "data/b.bin");
}

TEST_F(AppendedData, ACheckpointWithoutTheNamesOfItsFilesGoesOnWithTheSameOnly) {
  DataCursor saved = cursor(dataset(), 4);
  saved.files.clear();
  EXPECT_EQ(refused(saved), Lines{});
  write("b.bin", 16, 2);
  EXPECT_EQ(refused(saved).size(), 1U);
}

TEST_F(AppendedData, KeepsEveryBitOnAnyRanksHoweverOftenTheRunIsInterrupted) {
  const auto start = [&](int last_step) {
    fs::remove(directory_ / "data/b.bin");
    const std::string path = fresh();
    EXPECT_EQ(run(config_, 2, path, last_step), ExitCode::kStopped);
    write("b.bin", 16, 2);
    return path;
  };
  const std::string once = start(4);
  test::run_job(config_, 1, 1, once);
  const Lines expected = test::steps_of(once);
  ASSERT_EQ(expected.size(), 14U);
  EXPECT_NE(test::logs_of(once).find("appended to data.train: b.bin; read from epoch 2 on, which begins with batch 6"),
            std::string::npos)
      << test::logs_of(once);

  const std::string often = start(4);
  EXPECT_EQ(run(config_, 4, often, 5), ExitCode::kStopped);  // in the old epoch
  EXPECT_EQ(run(config_, 2, often, 8), ExitCode::kStopped);  // over its end
  const json data = json::parse(std::ifstream(often + "/checkpoints/step-00000008/manifest.json"))["training"]["data"];
  EXPECT_EQ(data["first_batch"], 6);
  EXPECT_EQ(data["first_epoch"], 2);
  EXPECT_EQ(data["epoch"], 2);
  EXPECT_EQ(data["files"].size(), 2U);
  test::run_job(config_, 4, 1, often);
  EXPECT_EQ(test::steps_of(often), expected);

  const std::string between = start(6);
  test::run_job(config_, 4, 1, between);
  EXPECT_EQ(test::steps_of(between), expected);
  EXPECT_NE(test::logs_of(between).find("which begins with the next batch"), std::string::npos);

  fs::remove(directory_ / "data/b.bin");
  const std::string without = fresh();
  test::run_job(config_, 1, 1, without);
  const Lines old = test::steps_of(without);
  EXPECT_EQ(Lines(old.begin(), old.begin() + 6), Lines(expected.begin(), expected.begin() + 6));
  EXPECT_NE(old[6], expected[6]);
  const std::string refusal = test::run_to_errors(config_, 1, once).front();
  EXPECT_EQ(refusal.substr(0, refusal.find(';')).find("2 resume from "), 0U) << refusal;
  EXPECT_NE(refusal.find("data.train: its files are not those of the saved run: b.bin is gone"), std::string::npos);
}

TEST_F(AppendedData, CountsEpochsAndTokens) {
  config_.run.steps = 100;
  config_.run.epochs = 3;
  const std::string path = fresh();
  EXPECT_EQ(run(config_, 2, path, 4), ExitCode::kStopped);
  write("b.bin", 16, 2);
  config_.data.train.front().path = directory_ / "data/?.bin";  // another name for them
  std::vector<json> steps;
  for (const std::string& line : test::run_job(config_, 4, 1, path)) {
    if (const json event = json::parse(line); !event.contains("kind")) steps.push_back(event);
  }
  ASSERT_EQ(steps.size(), 11U) << "two epochs of three batches, one of five";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["epoch"], i < 3 ? 0 : i < 6 ? 1 : 2);
    EXPECT_EQ(steps[i]["tokens_seen"], (i + 1) * 8 * 16);
  }
}

}  // namespace
}  // namespace tessera
