// C5: one flipped bit, one byte more, in any file: refused before anything is used, by the name of the file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/checkpoint/thread_ranks.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::SyntheticState;

class Damage : public testing::Test {
 protected:
  Damage() : saved_(test::save_layout(*files_, directory_ / "checkpoints", model_, "block", 2, 1, 5)) {}

  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (const DirectoryEntry& entry : files_->list(saved_.folder)) paths.push_back(saved_.folder + "/" + entry.name);
    return paths;
  }
  std::string contents(const std::string& path) const { return read_small_file(*files_, path, 1 << 30); }
  static void overwrite(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  // How loading on all ranks of another layout ends.
  std::vector<std::string> load() {
    return test::run_ranks(3, [&](test::ThreadRanks& threads, int rank) {
      test::ThreadExchange ranks(threads, rank);
      SyntheticState state(model_, "root", 3, rank);
      CheckpointReader::open(*files_, saved_.folder).load(ranks, state.targets());
    });
  }

  test::TemporaryDirectory directory_;
  const ModelSpec model_ = test::tiny_model(4, 67, 240);  // two files of 1.4 MiB: two blocks each
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  SavedCheckpoint saved_;
};

TEST_F(Damage, AnyOf64FlippedBitsIsFoundByLoadingAndByVerifying) {
  std::mt19937_64 random(7);
  const std::vector<std::string> all = paths();
  for (int trial = 0; trial < 64; ++trial) {
    const std::string& path = all[static_cast<std::size_t>(trial) % all.size()];
    const std::string good = contents(path);
    std::string bad = good;
    const std::size_t at = random() % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    overwrite(path, bad);

    for (const std::string& message : load()) EXPECT_NE(message.find(path), std::string::npos) << message;
    const VerifyReport report = verify_checkpoint(*files_, saved_.folder);
    ASSERT_EQ(report.damage.size(), 1U) << path << " " << at;
    EXPECT_TRUE(report.damage[0].starts_with(path + ": ")) << report.damage[0];
    if (!path.ends_with("manifest.json")) {
      EXPECT_NE(report.damage[0].find(fmt::format("damaged in block {} of ", at >> 20)), std::string::npos)
          << report.damage[0];
    }
    overwrite(path, good);
  }
  EXPECT_TRUE(verify_checkpoint(*files_, saved_.folder).ok());
}

TEST_F(Damage, AnAppendedOrMissingByteIsFoundInEveryFile) {
  for (const std::string& path : paths()) {
    const std::string good = contents(path);
    for (const std::string& bad : {good + '\0', good.substr(0, good.size() - 1), std::string()}) {
      overwrite(path, bad);
      for (const std::string& message : load()) EXPECT_NE(message.find(path), std::string::npos) << message;
      const VerifyReport report = verify_checkpoint(*files_, saved_.folder);
      ASSERT_EQ(report.damage.size(), 1U);
      EXPECT_TRUE(report.damage[0].starts_with(path + ": ")) << report.damage[0];
    }
    overwrite(path, good);
  }
  EXPECT_EQ(load(), std::vector<std::string>(3));
}

TEST_F(Damage, WhatNoRankReadsIsCheckedByOne) {
  const std::string path = saved_.folder + "/shard-00000-of-00002.safetensors";
  std::string bad = contents(path);
  bad.back() = static_cast<char>(bad.back() ^ 1);
  overwrite(path, bad);
  const auto messages = test::run_ranks(3, [&](test::ThreadRanks& threads, int rank) {
    test::ThreadExchange ranks(threads, rank);
    CheckpointReader::open(*files_, saved_.folder).load(ranks, {});
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find(path + ": damaged in block "), std::string::npos) << message;
    EXPECT_EQ(message, messages[0]);
  }
}

TEST_F(Damage, VerifyingFindsAllOfIt) {
  for (const std::string& path : paths()) {
    if (path.ends_with("manifest.json")) continue;
    std::string bad = contents(path);
    bad.front() = static_cast<char>(bad.front() ^ 1);
    bad.back() = static_cast<char>(bad.back() ^ 1);
    overwrite(path, bad);
  }
  EXPECT_EQ(verify_checkpoint(*files_, saved_.folder).damage.size(), 4U + 2U) << "two blocks and a header each";
}

TEST_F(Damage, NoneIsNoneAndTheRootIsMadeAnew) {
  const VerifyReport report = verify_checkpoint(*files_, saved_.folder);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.root_hash, saved_.root_hash);
  EXPECT_EQ(report.num_files, 2U);
  EXPECT_EQ(report.num_bytes, saved_.bytes);
  EXPECT_EQ(report.num_blocks, 4U);
}

}  // namespace
}  // namespace tessera
