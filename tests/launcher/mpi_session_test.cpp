#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/mpi_session.h"
#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::CommandResult;

CommandResult run_session(int num_ranks, const std::string& arguments) {
  return test::run_command(test::mpirun(num_ranks) + test::kSessionProgram + arguments, {.timeout_seconds = 120});
}

std::string line_of(int rank, int size, const std::string& text) {
  return fmt::format("[rank {}/{} {}] {}\n", rank, size, host_name(), text);
}

TEST(MpiSession, StartsAndEndsWithoutAWord) {
  const CommandResult result = run_session(4, "finish");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
}

TEST(MpiSession, PrintsAnErrorOfTheStartOnceAndAllLeaveWithItsCode) {
  const CommandResult all = run_session(4, "agree 0 1 2 3");
  EXPECT_EQ(all.exit_code, 3);
  EXPECT_EQ(all.err, line_of(0, 4, "data: file of rank 0 is empty; hint: write to it"));
  const CommandResult some = run_session(4, "agree 3 2");
  EXPECT_EQ(some.exit_code, 3);
  EXPECT_EQ(some.err, line_of(2, 4, "data: file of rank 2 is empty; hint: write to it"));
}

TEST(MpiSession, EndsRanksThatWaitForOneThatFailed) {
  const CommandResult result = run_session(4, "throw 2");
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.err, line_of(2, 4, "memory: rank 2 has none"));
}

TEST(MpiSession, FindsOneListOfGroupsInEightProcesses) {  // D10
  const CommandResult result = run_session(8, "groups");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out,
            "dp 2 × pp 2 × tp 2: 8 ranks, 1 lists\ndp 4 × pp 2 × tp 1: 8 ranks, 1 lists\n"
            "dp 1 × pp 2 × tp 4: 8 ranks, 1 lists\ndp 8 × pp 1 × tp 1: 8 ranks, 1 lists\n");
}

TEST(MpiSession, EndsAThrowInBackwardWithAPrefetchInFlight) {  // D9
  for (const char* way : {"backward", "backward-unwinding"}) {
    for (const int rank : {0, 3}) {
      const CommandResult result = run_session(4, fmt::format("{} {}", way, rank));
      EXPECT_FALSE(result.timed_out) << way;
      EXPECT_EQ(result.exit_code, 6) << way;
      EXPECT_EQ(result.err, line_of(rank, 4, "backward: no memory for block.1")) << way;
    }
  }
}

TEST(MpiSession, PrintsOnceWhereSeveralRanksFailWhileOthersWait) {
  const CommandResult result = run_session(4, "throw 3 1");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.err, line_of(1, 4, "memory: rank 1 has none"));
}

TEST(MpiSession, LeavesInOrderWhereEveryRankFails) {
  const CommandResult result = run_session(4, "throw 0 1 2 3");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.err, line_of(0, 4, "memory: rank 0 has none"));
}

TEST(MpiSession, CallsWhatNobodyExpectedAnInternalError) {
  const CommandResult result = run_session(2, "bug 1");
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_EQ(result.err, line_of(1, 2, "internal: surprise"));
}

TEST(MpiSession, AnErrorOfACallDoesNotHideTheErrorThatCausedIt) {
  const CommandResult all = run_session(3, "shadow 1");
  EXPECT_EQ(all.exit_code, 70);
  EXPECT_EQ(all.err, line_of(1, 3, "internal: surprise"));
  const CommandResult some = run_session(3, "shadow-with-a-waiter 1");
  EXPECT_EQ(some.exit_code, 70);
  EXPECT_EQ(some.err, line_of(1, 3, "internal: surprise"));
}

TEST(MpiSession, PassesTheCodeOfAStopOn) {
  EXPECT_EQ(run_session(4, "stopped").exit_code, 130);
}

TEST(MpiSession, RunsAloneWithoutMpirun) {
  const CommandResult result = test::run_command(test::kSessionProgram + "throw 0");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.err, line_of(0, 1, "memory: rank 0 has none"));
}

TEST(MpiSession, NotesEachOfTheFourSignals) {
  const test::TemporaryDirectory directory;
  for (const char* signal : {"INT", "TERM", "HUP", "USR1"}) {
    const CommandResult result = test::run_command(
        fmt::format("touch out; {}/tests/tessera_session_program wait-for-stop > out & p=$!; until grep -q "
                    "ready out; do sleep 0.05; done; kill -{} $p; wait $p; "
                    "code=$?; cat out; rm out; exit $code",
                    TESSERA_BINARY_DIR, signal),
        {.working_directory = directory.path().string()});
    EXPECT_EQ(result.exit_code, 130) << signal;
    EXPECT_EQ(result.out, fmt::format("ready\nSIG{}\n", signal));
  }
}

}  // namespace
}  // namespace tessera
