#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launcher/attempt.h"
#include "launcher/supervisor.h"
#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::kSessionProgram;

// The supervisor around an mpirun of two ranks; `script` may use $p, its process, once both ranks have printed "ready". stdout is what
// the ranks printed after that. before: what the shell does first.
CommandResult supervise(const std::string& mode, const std::string& script, const std::string& before = ":") {
  const test::TemporaryDirectory directory;
  return test::run_command(
      fmt::format(
          "{}; touch out; {}supervise {}{}{} > out & p=$!; until [ $(grep -c ready out) = 2 ]; do sleep 0.05; done; "
          "{}; wait $p; code=$?; grep -v ready out; exit $code",
          before, kSessionProgram, test::mpirun(2), kSessionProgram, mode, script),
      {.timeout_seconds = 120, .working_directory = directory.path().string()});
}

TEST(MpiSupervisor, TurnsEachSignalIntoARequestToStop) {
  for (const char* signal : {"INT", "TERM", "HUP", "USR1"}) {
    const CommandResult result = supervise("wait-for-stop", fmt::format("kill -{} $p", signal));
    EXPECT_EQ(result.exit_code, 130) << signal;
    EXPECT_EQ(result.out, "SIGUSR1\n") << "the ranks leave by themselves, asked by the signal that mpirun passes on";
    EXPECT_EQ(result.err, fmt::format("launch: SIG{}: asking the ranks to stop; again to kill them\n", signal));
  }
}

// What nohup does before it starts a program.
TEST(MpiSupervisor, LeavesAHangupAloneThatWasIgnoredAtTheStart) {
  const CommandResult result = supervise("wait-for-stop", "kill -HUP $p; kill -USR1 $p", "trap '' HUP");
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.err, "launch: SIGUSR1: asking the ranks to stop; again to kill them\n");
}

// The kernel says which signals a process ignores: bit 0 is SIGHUP.
TEST(MpiStopSignal, IsAHangupOnlyWhereItWasNotIgnoredAtTheStart) {
  const auto ignores_hangup = [](const std::string& before) {
    const test::TemporaryDirectory directory;
    const std::string mask =
        test::run_command(
            fmt::format("{}; touch out; {} wait-for-stop > out & p=$!; until grep -q ready out; do sleep "
                        "0.05; done; awk '/^SigIgn/ {{print $2}}' /proc/$p/status; kill -USR1 $p; wait $p",
                        before, kSessionProgram),
            {.timeout_seconds = 120, .working_directory = directory.path().string()})
            .out;
    return (std::stoull(mask, nullptr, 16) & 1U) != 0;
  };
  EXPECT_FALSE(ignores_hangup(":"));
  EXPECT_TRUE(ignores_hangup("trap '' HUP"));
}

TEST(MpiSupervisor, EndsRanksThatDoNotAnswerAtTheSecondInterrupt) {
  const CommandResult result = supervise("deaf", "kill -INT $p; sleep 0.5; kill -INT $p");
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 130);
}

TEST(MpiSupervisor, ReturnsTheCodeOfTheRanks) {
  const CommandResult result =
      test::run_command(kSessionProgram + "supervise " + test::mpirun(2) + kSessionProgram + "agree 1");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("data: file of rank 1 is empty"), std::string::npos);
}

TEST(MpiSupervisor, SaysThatARankWasLostAndReturnsFour) {
  const CommandResult result =
      test::run_command(kSessionProgram + "supervise " + test::mpirun(2) + kSessionProgram + "killed 1");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(result.err.ends_with(") died\nlaunch: a rank was lost to signal 9 (Killed)\n")) << result.err;
}

// A script that starts something of its own and then becomes the launcher, as entry points of containers do.
TEST(MpiSupervisor, LeavesAloneWhatWasAChildOfItsProcessBefore) {
  const test::TemporaryDirectory directory;
  const CommandResult result = test::run_command(
      fmt::format("sh -c 'sleep 300 > /dev/null 2>&1 & echo $! > child; exec {}supervise {}{}killed 1' 2> /dev/null; "
                  "kill $(cat child) && echo alive",
                  kSessionProgram, test::mpirun(2), kSessionProgram),
      {.timeout_seconds = 120, .working_directory = directory.path().string()});
  EXPECT_EQ(result.out, "alive\n");
}

TEST(MpiSupervisor, PointsToMpirunsOwnWordsWhereItFails) {
  const CommandResult result = test::run_command(kSessionProgram + "supervise " + test::mpirun(2) + "/nowhere/program");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.err.find("it failed, or lost a rank; hint: without --quiet it says why: "), std::string::npos)
      << result.err;
}

TEST(Supervisor, ReadsWhatMpirunReturned) {
  EXPECT_EQ(job_exit_code(0, false), 0);
  EXPECT_EQ(job_exit_code(0, true), 0) << "the job was done before it heard of the stop";
  EXPECT_EQ(job_exit_code(2, false), 2);
  EXPECT_EQ(job_exit_code(130, true), 130);
  EXPECT_EQ(job_exit_code(137, false), 4) << "killed: a lost rank";
  EXPECT_EQ(job_exit_code(1, false), 4) << "mpirun's own code for a lost rank";
  EXPECT_EQ(job_exit_code(138, true), 130) << "a rank that had not yet learned of SIGUSR1 died of it";
  EXPECT_EQ(job_exit_code(7, true), 7) << "what the ranks say goes first";
}

}  // namespace
}  // namespace tessera
