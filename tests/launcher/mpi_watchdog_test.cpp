// Ranks that die, hang or leave while others wait for them: one line says who and where, and nobody waits for ever.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::kTessera;
using test::kWatchProgram;

const std::string kSupervise = test::kSessionProgram + "supervise ";

// The lines that ranks said, without warnings.
std::vector<std::string> said(const CommandResult& result) {
  std::istringstream text(result.err);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("[rank ") && line.find("] warning: ") == std::string::npos) lines.push_back(line);
  }
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One line, with all of these in it.
void expect_one_line(const CommandResult& result, const std::vector<std::string>& parts,
                     const std::string& where = "") {
  EXPECT_FALSE(result.timed_out) << where;
  const std::vector<std::string> lines = said(result);
  ASSERT_EQ(lines.size(), 1U) << where << ": " << result.err;
  for (const std::string& part : parts)
    EXPECT_TRUE(contains(lines[0], part)) << where << ": " << part << "\n" << lines[0];
}

class MpiWatchdog : public ::testing::Test {
 protected:
  CommandResult run(const std::string& command) const {
    return test::run_command(command, {.timeout_seconds = 120, .working_directory = directory.path().string()});
  }
  // Three ranks, of which rank 1 does it at call 5.
  CommandResult calls(const std::string& how, const std::string& level = "strict") const {
    return run(test::mpirun(3, "--bind-to none") + kWatchProgram +
               fmt::format("calls {} 1 run-{}-{} {}", how, how, level, level));
  }
  void write_job(const std::string& steps, double timeout_seconds = 3) const {
    test::write_tokens(directory / "train.bin", 2000, 64);
    std::ofstream(directory / "job.yaml") << fmt::format(
        "run: {{name: t, steps: {}}}\n"
        "model: {{num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64}}\n"
        "data: {{train: [train.bin]}}\n"
        "batch: {{global_batch_size: 8, micro_batch_size: 2}}\n"
        "reproducibility: {{lanes: 4}}\n"
        "device: {{threads: 1}}\n"
        "collectives: {{timeout_seconds: {}}}\n",
        steps, timeout_seconds);
  }
  // Runs `line` in the background until a job has made three steps, does `script`, in which $p is the process, $mpirun
  // that of mpirun and $ranks those of the ranks, and waits for the end.
  CommandResult disturbed(const std::string& line, const std::string& script) const {
    return run(fmt::format(
        "{} > out & p=$!; touch out; until grep -q 'step *3/' out; do sleep 0.05; done; mpirun=$p; "
        "[ $(cat /proc/$p/comm) = mpirun ] || mpirun=$(pgrep -P $p -x mpirun); ranks=$(pgrep -P $mpirun -x tessera); "
        "last=$(echo $ranks | tr ' ' '\\n' | tail -n 1); {}; wait $p; code=$?; cat out; exit $code",
        line, script));
  }
  std::string train(int num_ranks, const std::string& more = "") const {
    return test::mpirun(num_ranks, "--bind-to none") + kTessera + "train job.yaml --run-dir r " + more;
  }

  test::TemporaryDirectory directory;
};

TEST_F(MpiWatchdog, ARankThatIsKilledIsReportedAtOnceWithTheCallItNeverReached) {  // D8
  const CommandResult result = calls("kill");
  EXPECT_NE(result.exit_code, 0);
  expect_one_line(result, {"rank 1 (", ") died in step 5; ranks 0, 2 waited ",
                           " for it in all_reduce call.5 test, step 5", "; hint: tessera inspect run-kill-strict"});
}

TEST_F(MpiWatchdog, ARankThatExitsEarlyWithZeroIsReportedLikeOneThatDied) {  // D8
  const CommandResult result = calls("exit");
  EXPECT_NE(result.exit_code, 0);
  expect_one_line(result, {"rank 1 (", ") died in step 5; ranks 0, 2 waited ", " for it in all_reduce call.5 test"});
}

TEST_F(MpiWatchdog, AStoppedRankIsFoundByTheTimeout) {  // D8
  const CommandResult result = calls("stop");
  EXPECT_EQ(result.exit_code, 4);
  expect_one_line(result, {"call 5 of world/reduce", "no sign of world rank 1 within 2 s", "rank 1 (", ", stopped)",
                           "has not reached all_reduce call.5 test", "where ranks 0, 2 wait"});
}

TEST_F(MpiWatchdog, ALoopingRankIsFoundByTheTimeout) {
  const CommandResult result = calls("loop");
  EXPECT_EQ(result.exit_code, 4);
  expect_one_line(result, {"no sign of world rank 1 within 2 s", "rank 1 (", ", running) has not reached"});
}

TEST_F(MpiWatchdog, OneCallMoreOrLessNamesTheRankAndTheCall) {  // D5
  const CommandResult more = calls("more");
  EXPECT_EQ(more.exit_code, 4);
  expect_one_line(more, {"call 5 of world/reduce", "call.5 test", "rank 1: ", "call.100"});
  const CommandResult less = calls("less");
  EXPECT_EQ(less.exit_code, 4);
  expect_one_line(less, {"call 5 of world/reduce", "call.5 test", "rank 1: ", "call.6"});
}

TEST_F(MpiWatchdog, OneCallMoreOrLessEndsTheRunEvenWhereNothingIsCompared) {  // D5
  for (const char* level : {"log", "off"}) {
    for (const char* how : {"more", "less"}) {
      const CommandResult result = calls(how, level);
      EXPECT_EQ(result.exit_code, 4) << level << how;
      expect_one_line(result, {}, fmt::format("{} {}", level, how));
    }
  }
}

TEST_F(MpiWatchdog, TheRanksOwnErrorIsTheOneShown) {
  const CommandResult result = calls("throw");
  EXPECT_EQ(result.exit_code, 70);
  expect_one_line(result, {"[rank 1/3 ", "internal: surprise"});
}

TEST_F(MpiWatchdog, WithoutLogsItSaysWhatItKnows) {
  const CommandResult killed = calls("kill", "off");
  EXPECT_NE(killed.exit_code, 0);
  expect_one_line(killed, {"rank 1 (", ") died"});
  const CommandResult stopped = calls("stop", "off");
  EXPECT_EQ(stopped.exit_code, 4);
  expect_one_line(stopped, {"no sign of world rank 1 within 2 s"});
}

TEST_F(MpiWatchdog, LaunchReturnsFourForALostRankAfterTheVerdictOfTheRanks) {  // D8
  write_job("1000000");
  const CommandResult result = disturbed(kTessera + "launch -n 2 job.yaml --run-dir r", "kill -9 $last");
  EXPECT_EQ(result.exit_code, 4);
  expect_one_line(result, {"rank 1 (", ") died in step "});
}

TEST_F(MpiWatchdog, AJobThatIsStoppedAsAWholeHasNoVerdict) {
  write_job("1000000");
  for (const char* how : {"kill -INT $mpirun", "kill -TERM $mpirun", "kill -9 $ranks"}) {
    run("rm -rf r");  // one that had the time to save would go on from there
    const CommandResult result = disturbed(train(4), how);
    EXPECT_FALSE(result.timed_out) << how;
    EXPECT_NE(result.exit_code, 0) << how;
    EXPECT_EQ(said(result), std::vector<std::string>{}) << how;
  }
}

TEST_F(MpiWatchdog, ASigtermOfOneRankIsARequestToStop) {
  write_job("1000000");
  const CommandResult result = disturbed(train(2), "kill -TERM $last");
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_TRUE(contains(result.out, "stopping after step ")) << result.out;
}

TEST_F(MpiWatchdog, ADeadRankBeginsNoStop) {
  write_job("1000000");
  const CommandResult result = disturbed(train(2), "kill -9 $last");
  EXPECT_FALSE(contains(result.out, "stopping after step ")) << result.out;
  expect_one_line(result, {"rank 1 (", ") died in step "});
}

TEST_F(MpiWatchdog, ARunDirectoryThatVanishesDoesNotEndTheJob) {
  write_job("400");
  const CommandResult result = disturbed(train(2), "rm -rf r");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(said(result), std::vector<std::string>{});
  EXPECT_TRUE(contains(result.out, "step 400/400"));
}

TEST_F(MpiWatchdog, ADeathAfterTheRunDirectoryVanishedIsStillReported) {
  write_job("1000000");
  const CommandResult result = disturbed(train(2), "rm -rf r; kill -9 $last");
  EXPECT_NE(result.exit_code, 0);
  expect_one_line(result, {"rank 1 (", ") died"});
}

// A file system of a given size, as root.
class SmallDisk {
 public:
  SmallDisk(std::string path, const std::string& size) : path_(std::move(path)) {
    mounted_ = ::geteuid() == 0 && ::mount("tmpfs", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST_F(MpiWatchdog, ADiskThatIsTooSmallForTheLogsIsAnErrorAtTheStart) {
  write_job("3");
  std::filesystem::create_directory(directory / "disk");
  const SmallDisk disk(directory / "disk", "4m");
  if (!disk.mounted()) GTEST_SKIP() << "a small file system needs root and mount";
  const CommandResult result = run(test::mpirun(2, "--bind-to none") + kTessera + "train job.yaml --run-dir disk/r");
  EXPECT_EQ(result.exit_code, 6);
  expect_one_line(result, {"collective log disk/r/collectives/rank-0000", "bytes needed", "No space left on device"});
}

TEST_F(MpiWatchdog, ADiskThatFillsIsANamedErrorAndNoCrash) {
  write_job("1000000");
  std::filesystem::create_directory(directory / "disk");
  const SmallDisk disk(directory / "disk", "16m");
  if (!disk.mounted()) GTEST_SKIP() << "a small file system needs root and mount";
  const CommandResult result =
      disturbed(test::mpirun(2, "--bind-to none") + kTessera + "train job.yaml --run-dir disk/r --set run.log_every=1",
                "dd if=/dev/zero of=disk/full bs=4k 2> /dev/null");
  EXPECT_EQ(result.exit_code, 6) << result.err;
  expect_one_line(result, {"[rank 0/2 ", "disk/r/metrics.jsonl: No space left on device"});
}

class MpiTeardown : public MpiWatchdog {
 protected:
  CommandResult leave(const std::string& state, const std::string& how) const {
    return run("rm -rf r; " + test::mpirun(2, "--bind-to none") + kWatchProgram +
               fmt::format("teardown {} {} 1 job.yaml r", state, how));
  }
};

TEST_F(MpiTeardown, ARankKilledInAnyStateIsNamed) {
  write_job("2");
  for (const char* state : {"streams", "peers", "barrier", "communicators", "mpi"}) {
    const CommandResult result = leave(state, "kill");
    EXPECT_NE(result.exit_code, 0) << state;
    expect_one_line(result, {"[rank 0/2 ", "rank 1 (", ") died in "}, state);
  }
}

TEST_F(MpiTeardown, ARankStoppedInAnyStateIsNamedAfterTheDeadline) {
  write_job("2", 2);
  for (const char* state : {"streams", "peers", "barrier", "communicators", "mpi"}) {
    const CommandResult result = leave(state, "stop");
    EXPECT_EQ(result.exit_code, 4) << state;
    expect_one_line(result, {"[rank 0/2 ", "rank 1 (", ", stopped) "}, state);
  }
}

TEST_F(MpiTeardown, ARankThatHangsInAnyStateEndsAfterTheDeadline) {
  write_job("2", 2);
  for (const char* state : {"streams", "peers", "barrier", "communicators", "mpi", "gone"}) {
    const CommandResult result = leave(state, "loop");
    EXPECT_EQ(result.exit_code, 4) << state;
    expect_one_line(result, {}, state);
    EXPECT_TRUE(contains(result.err, "teardown")) << result.err;
  }
}

TEST_F(MpiTeardown, AnErrorInAnyStateIsShown) {
  write_job("2", 2);
  for (const char* state : {"streams", "peers", "barrier", "communicators", "mpi"}) {
    const CommandResult result = leave(state, "throw");
    EXPECT_NE(result.exit_code, 0) << state;
    expect_one_line(result, {"[rank 1/2 ", "internal: surprise"}, state);
  }
}

// The wire is cut while the job runs: mpirun itself cannot end it any longer.
TEST_F(MpiWatchdog, TwoHostsWhoseWireIsCutHaveAVerdictAndLaunchEndsTheJob) {
  write_job("1000000");
  std::ofstream(directory / "launch.sh") << "#!/bin/sh\nexec " + kSupervise + "mpirun \"$@\"\n";
  const CommandResult result =
      run(fmt::format("chmod +x launch.sh; touch out; {}/tests/support/two_hosts.sh --per-host 1 ./launch.sh --quiet "
                      "-n 2 {}train job.yaml "
                      "--run-dir r > out & p=$!; until grep -q -e 'step *3/' -e skipped out; do sleep 0.05; done; "
                      "ip -n tessera-b-$p link set wire0 down 2> /dev/null; wait $p",
                      TESSERA_SOURCE_DIR, kTessera));
  if (result.exit_code == 77) GTEST_SKIP() << "no network namespaces";
  EXPECT_EQ(result.exit_code, 4) << result.err;
  expect_one_line(result, {"[rank 0/2 ", "no sign of world rank 1 within 3 s"});
}

}  // namespace
}  // namespace tessera
