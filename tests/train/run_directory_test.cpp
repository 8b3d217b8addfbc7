#include "runtime/train/run_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/train/trainer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(RunLock, ASecondRunIsRefusedNamingTheOwnerUntilTheFirstEnds) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path().string();
  {
    const RunLock owner(path, "node7");
    const std::string message = refusal([&] { const RunLock second(path, "node8"); });
    EXPECT_NE(message.find("in use by process " + std::to_string(::getpid()) + " on node7, since 20"),
              std::string::npos)
        << message;
  }
  EXPECT_FALSE(fs::exists(path + "/.lock"));
  EXPECT_EQ(refusal([&] { const RunLock second(path, "node8"); }), "(accepted)");
}

TEST(RunLock, ADeadOwnersLockDoesNotCount) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path().string();
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock owner(path, "node7");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::exists(path + "/.lock")) << "killed before it could clean up";
  EXPECT_EQ(refusal([&] { const RunLock second(path, "node8"); }), "(accepted)");
}

TEST(RunDirectory, OfARunInProgressIsRefusedToAllRanksAndLeftAsItIs) {
  const test::TemporaryDirectory directory;
  JobConfig config = test::model_t(1);
  config.data.train = {{test::write_tokens(directory / "train.bin", 2001, 64), 1.0}};
  const std::string path = directory / "run";
  test::run_job(config, 1, 1, path);
  const auto written = fs::last_write_time(path + "/metrics.jsonl");
  const RunLock owner(path, "node7");
  try {
    test::run_job(config, 2, 1, path);
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code, ExitCode::kUsage);
    EXPECT_EQ(error.rank, 0);
    EXPECT_NE(std::string(error.what()).find("on node7"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(fs::exists(path + "/attempts"));
  EXPECT_EQ(fs::last_write_time(path + "/metrics.jsonl"), written);
}

TEST(RunDirectory, WithFoldersOfEqualNamesOfSomebodyElseIsRefusedAndNothingMoves) {
  for (const char* name : {"logs", "collectives", "attempts", "config.yaml"}) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path().string();
    fs::create_directory(path + "/" + name);
    std::ofstream(path + "/" + name + "/precious") << "years";
    std::optional<RunLock> lock;
    const std::string message = refusal([&] { RunDirectory(path).acquire("node7", lock); });
    EXPECT_EQ(message, "run directory " + path + ": holds " + name + ", which is not a run's");
    EXPECT_TRUE(fs::exists(path + "/" + name + "/precious"));
    EXPECT_FALSE(fs::exists(path + "/.lock"));
  }
}

// Killed at any point between the lock and config.yaml: the next run may go on.
TEST(RunDirectory, OfARunThatEndedBeforeItHadAConfigIsTakenOver) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "run";
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::optional<RunLock> lock;
    RunDirectory(path).acquire("node7", lock);
    EXPECT_EQ(RunDirectory(path).prepare(7), attempt);
  }
  std::optional<RunLock> lock;
  EXPECT_EQ(refusal([&] { RunDirectory(path).acquire("node7", lock); }), "(accepted)");
}

// Killed while it moved files: what tells a run by then may lie apart, and the next run may go on all the same.
TEST(RunDirectory, IsMarkedAsARunsBeforeAnythingOfAnEarlierStartMoves) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path().string();
  for (const char* name : {"config.yaml", "plan.json", "attempts"}) std::ofstream(path + "/" + name) << "x";
  EXPECT_THROW(RunDirectory(path).prepare(7), DeviceError) << "no folder can be where a file is";
  fs::remove(path + "/config.yaml");
  std::optional<RunLock> lock;
  EXPECT_EQ(refusal([&] { RunDirectory(path).acquire("node7", lock); }), "(accepted)");
}

}  // namespace
}  // namespace tessera
