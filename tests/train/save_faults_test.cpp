// What can go wrong in and around a save, through the trainer: rehearsed faults, full disks, damage.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "checkpoint/verify.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/train/run_files.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::has;

namespace fs = std::filesystem;
using Errors = std::vector<std::string>;

class SaveFaults : public testing::Test {
 protected:
  // Model T: a checkpoint every three steps.
  JobConfig job(std::int64_t steps, const std::vector<ChaosFault>& faults = {}) {
    JobConfig config = test::model_t(steps);
    config.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, 64), 1.0}};
    config.checkpoint.every = 3;
    config.chaos = faults;
    return config;
  }
  std::string fresh() { return directory_ / fmt::format("run{}", ++runs_); }
  // What a run ends with that nothing disturbs.
  std::vector<std::string> undisturbed(JobConfig config) {
    config.chaos.clear();
    const std::string path = fresh();
    test::run_job(config, 1, 1, path);
    return test::steps_of(path);
  }
  // Makes `step` the last update, which is saved.
  static void run_and_stop_after(const JobConfig& config, int world, const std::string& path, int step) {
    std::atomic<int> asked = 0;
    ASSERT_EQ(test::run_until(config, world, 1, path, [&](int rank) { return rank == 0 && ++asked >= step; }),
              ExitCode::kStopped);
  }
  static std::vector<std::string> files_of(const std::string& folder) {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
    std::ranges::sort(paths);
    return paths;
  }
  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void overwrite(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  test::TemporaryDirectory directory_;
  int runs_ = 0;
};

TEST_F(SaveFaults, AFullDiskOnOneRankEndsAllRanksAndTheSameCommandGoesOn) {
  for (const int rank : {0, 1}) {
    const JobConfig config = job(8, {{.rank = rank, .step = 6, .fault = "disk_full"}});
    const std::string path = fresh();
    const Errors ends = test::run_to_errors(config, 2, path);
    EXPECT_TRUE(ends[0].starts_with(fmt::format("5 rank {}: {}/checkpoints/.saving-00000006-", rank, path))) << ends[0];
    EXPECT_TRUE(has(ends[0], fmt::format("/shard-{:05}-of-00002.safetensors: disk full: ", rank)));
    EXPECT_TRUE(has(ends[0], " bytes needed, 0 free; hint: free some space"));
    for (int r = 0; r < 2; ++r) {
      EXPECT_TRUE(
          has(ends[static_cast<std::size_t>(r)],
              fmt::format("\nchaos: disk_full of rank {} at step 6 was found on rank {} by the save after ", rank, r)));
    }
    EXPECT_EQ(test::checkpoints_of(path), std::vector<std::string>{"step-00000003"});
    EXPECT_EQ(test::run_to_errors(config, 4, path), Errors(4)) << "it fires once";
    EXPECT_EQ(test::steps_of(path), undisturbed(config));
    EXPECT_TRUE(has(test::logs_of(path), "resumed step 3, dp 2 → 4, certificate ok"));
  }
}

TEST_F(SaveFaults, AFlippedBitIsPublishedAndFoundByVerifyingAndByTheNextResume) {
  for (const int rank : {0, 1}) {
    const JobConfig config = job(12, {{.rank = rank, .step = 8, .fault = "flip_bit"}});
    const std::string path = fresh();
    run_and_stop_after(config, 2, path, 8);
    EXPECT_TRUE(
        has(test::logs_of(path), fmt::format("chaos: flip_bit of rank {} at step 8 fired; tessera checkpoint verify "
                                             "finds it, and a resume from there",
                                             rank)));
    EXPECT_EQ(test::checkpoints_of(path).back(), "step-00000008");
    const auto files = make_posix_file_system();
    const VerifyReport report = verify_checkpoint(*files, path + "/checkpoints/step-00000008");
    ASSERT_EQ(report.damage.size(), 1U);
    const std::string damaged =
        fmt::format("/step-00000008/shard-{:05}-of-00002.safetensors: damaged in block 0 of 1", rank);
    EXPECT_TRUE(has(report.damage[0], damaged));

    EXPECT_EQ(test::run_to_errors(config, 4, path), Errors(4));
    const std::string log = test::logs_of(path);
    EXPECT_TRUE(has(log, "checkpoint step-00000008 is passed over: "));
    EXPECT_TRUE(has(log, damaged));
    EXPECT_TRUE(
        has(log, fmt::format("chaos: flip_bit of rank {} at step 8 was found on rank 0 by the resume after ", rank)));
    EXPECT_TRUE(has(log, "resumed step 6, dp 2 → 4, certificate ok"));
    EXPECT_EQ(test::steps_of(path), undisturbed(config));
  }
}

TEST_F(SaveFaults, AFaultOfASaveThatIsNotMadeDoesNotFireAndThatIsSaid) {
  const JobConfig config = job(4, {{.rank = 1, .step = 2, .fault = "disk_full"}});
  const std::string path = fresh();
  EXPECT_EQ(test::run_to_errors(config, 2, path), Errors(2));
  EXPECT_TRUE(has(test::logs_of(path), "chaos: disk_full of rank 1 at step 2 did not come to fire"));
}

// C2: a disk that holds one and a half checkpoints; only the manifest does not fit; only rank 1's disk is full.
TEST_F(SaveFaults, AFullDiskNamesPathNeedAndRestStopsAllRanksAndKeepsTheOlder) {
  const JobConfig config = job(8);
  const std::vector<std::string> expected = undisturbed(config);
  const std::string sized = fresh();
  run_and_stop_after(config, 2, sized, 1);
  std::uint64_t bytes = 0;  // of one checkpoint
  for (const std::string& file : files_of(sized + "/checkpoints/step-00000001")) bytes += fs::file_size(file);

  struct Case {
    std::string full;  // the part of the paths that have no more room than `left`; "": all
    std::uint64_t left;
    std::string named;
  };
  const std::vector<Case> cases = {{"", bytes * 3 / 2, "/.saving-00000006-"},
                                   {".saving-00000006", 100, "/manifest.json: disk full: "},
                                   {".saving-00000006", 100, "/shard-00001-of-00002.safetensors: disk full: "}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool manifest_only = i == 1, rank_1_only = i == 2;
    test::FaultyFileSystem disk, other;
    disk.limit(cases[i].left, manifest_only ? "manifest.json" : cases[i].full);
    const std::string path = fresh();
    if (manifest_only) {  // that of step 3 goes to another disk
      JobConfig first = config;
      first.run.steps = 4;
      test::run_job(first, 2, 1, path);
      fs::remove_all(path + "/checkpoints/step-00000004");
    }
    const Errors ends = test::run_with(
        config, 2, path, {.files = [&](int rank) -> FileSystem* { return rank_1_only && rank == 0 ? &other : &disk; }});
    EXPECT_TRUE(
        ends[0].starts_with(fmt::format("5 rank {}: {}/checkpoints/.saving-00000006-", rank_1_only ? 1 : 0, path)))
        << i << ends[0];
    EXPECT_TRUE(has(ends[0], cases[i].named)) << i;
    EXPECT_TRUE(has(ends[0], ": disk full: ")) << i;
    EXPECT_TRUE(has(ends[0], " bytes needed, ")) << i;
    EXPECT_TRUE(has(ends[0], " free; hint: ")) << i;
    EXPECT_EQ(ends[1], ends[0]) << i;
    EXPECT_EQ(test::checkpoints_of(path), std::vector<std::string>{"step-00000003"}) << i;
    EXPECT_EQ(test::run_to_errors(config, 1, path), Errors(1)) << i;
    EXPECT_EQ(test::steps_of(path), expected) << i;
  }
}

// A file system of `bytes` at a path, for as long as it lives.
class SmallDisk {
 public:
  SmallDisk(std::string path, std::uint64_t bytes) : path_(std::move(path)) {
    fs::create_directories(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, fmt::format("size={}", bytes).c_str()) == 0;
    if (!mounted_) problem_ = std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const std::string& problem() const { return problem_; }
  void grow(std::uint64_t bytes) const {
    EXPECT_EQ(::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT, fmt::format("size={}", bytes).c_str()), 0);
  }

 private:
  std::string path_, problem_;
  bool mounted_ = false;
};

TEST_F(SaveFaults, ARealDiskOfOneAndAHalfCheckpointsKeepsTheFirst) {  // C2
  JobConfig config = job(8);
  config.collectives.fingerprint = "off";  // no log: checkpoints are nearly all that the disk holds
  config.model.hidden_size = 128;
  const std::vector<std::string> expected = undisturbed(config);
  const std::string sized = fresh();
  run_and_stop_after(config, 2, sized, 1);
  std::uint64_t bytes = 0;
  for (const std::string& file : files_of(sized + "/checkpoints/step-00000001")) bytes += fs::file_size(file);
  const SmallDisk disk(directory_ / "disk", bytes * 3 / 2 + 262144);  // and the texts of a run
  if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here: " << disk.problem();
  const std::string path = directory_ / "disk/run";
  const Errors ends = test::run_to_errors(config, 2, path);
  EXPECT_TRUE(ends[0].starts_with(fmt::format("5 rank 0: {}/checkpoints/.saving-00000006-", path))) << ends[0];
  EXPECT_TRUE(has(ends[0], ": disk full: "));
  EXPECT_EQ(ends[1], ends[0]);
  EXPECT_EQ(test::checkpoints_of(path), std::vector<std::string>{"step-00000003"});
  disk.grow(bytes * 4);
  EXPECT_EQ(test::run_to_errors(config, 4, path), Errors(4));
  EXPECT_EQ(test::steps_of(path), expected);
}

// C5: the run has this one checkpoint, so that there is nothing to fall back to and nothing may be trained.
TEST_F(SaveFaults, AnyOf64FlippedBitsAndAnAppendedByteAreRefusedBeforeTrainingByTheFilesName) {
  JobConfig config = job(8);
  config.checkpoint.every = 0;
  const std::string path = fresh();
  run_and_stop_after(config, 2, path, 2);
  const std::string folder = path + "/checkpoints/step-00000002";
  const std::string metrics = contents(path + "/metrics.jsonl");
  const std::vector<std::string> files = files_of(folder);  // the manifest and two shards
  ASSERT_EQ(files.size(), 3U);
  const auto expect_refused = [&](const std::string& file, const std::string& what) {
    const auto system = make_posix_file_system();
    const VerifyReport report = verify_checkpoint(*system, folder);
    EXPECT_FALSE(report.ok()) << what;
    for (const std::string& line : report.damage) EXPECT_TRUE(line.starts_with(file + ": ")) << what << line;
    const Errors ends = test::run_to_errors(config, 1, path);
    EXPECT_TRUE(ends[0].starts_with(fmt::format("5 {}/checkpoints: no checkpoint loads: ", path))) << what << ends[0];
    EXPECT_TRUE(has(ends[0], file)) << what;
    EXPECT_EQ(contents(path + "/metrics.jsonl"), metrics) << what;
    EXPECT_FALSE(fs::exists(path + "/attempts")) << what;
  };
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 64; ++trial) {
    const std::string& file = files[static_cast<std::size_t>(trial) % files.size()];
    const std::string good = contents(file);
    std::string bad = good;
    const std::size_t at = random() % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    overwrite(file, bad);
    expect_refused(file, fmt::format("trial {}, byte {}: ", trial, at));
    overwrite(file, good);
  }
  for (const std::string& file : files) {
    const std::string good = contents(file);
    overwrite(file, good + '\0');
    expect_refused(file, "one byte more: ");
    overwrite(file, good);
  }
  EXPECT_EQ(test::run_to_errors(config, 1, path), Errors(1));
  EXPECT_EQ(test::steps_of(path), undisturbed(config));
}

// The step before the save that is under way when the run ends by another error that all ranks agreed on.
TEST_F(SaveFaults, ASaveUnderWayIsFinishedWhenTheRunEndsByAnotherAgreedError) {
  JobConfig config = job(8, {{.rank = 1, .step = 4, .fault = "nan_loss"}});
  config.run.on_nonfinite = "stop";
  const std::string path = fresh();
  const Errors ends = test::run_to_errors(config, 2, path);
  EXPECT_TRUE(has(ends[0], "7 step 4: loss or gradient is not finite on rank 1"));
  EXPECT_EQ(test::checkpoints_of(path), std::vector<std::string>{"step-00000003"});
  EXPECT_EQ(test::run_to_errors(config, 4, path), Errors(4)) << "it fires once";
  EXPECT_EQ(test::steps_of(path), undisturbed(config));
}

}  // namespace
}  // namespace tessera
