// Signals at any moment of a job, to mpirun, to a rank, to `tessera launch` (F5).
#include "parallel/collective_log.h"
#include "tests/launcher/launched_job.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::count;

class MpiSignal : public test::LaunchedJob {
 protected:
  std::string mpirun_line(int num_ranks) const {
    return test::mpirun(num_ranks, "--bind-to none") + tessera + "train job.yaml --run-dir r";
  }
  // "step-00000057" of "stopping after step 57: saved step-00000057 …".
  static std::string saved(const std::string& out) {
    const auto at = out.find(": saved step-");
    return at == std::string::npos ? "nothing" : out.substr(at + 8, 13);
  }
  void expect_whole(const std::string& where) const {
    EXPECT_EQ(run(tessera + "checkpoint verify r").exit_code, 0) << where;
  }
};

constexpr const char* kTraining = "grep -q 'step *3/' out";
constexpr const char* kSlow =
    "[ -s r/chaos/fault-0.json ]";  // the marker of the job's first fault, written before it acts

TEST_F(MpiSignal, Usr1ToMpirunSavesTheSameStepOnAllRanks) {
  write_job(1000000, 0);
  const CommandResult result = disturbed(mpirun_line(4), kTraining, "kill -USR1 $mpirun");
  EXPECT_EQ(result.exit_code, 75) << result.err;
  const std::string step = saved(result.out);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(count(contents(fmt::format("r/logs/rank-{:05}.log", rank)), "saved r/checkpoints/" + step), 1) << rank;
  expect_whole("USR1");
}

// mpirun leaves the ranks a second, which a small model does not need in full.
TEST_F(MpiSignal, TermToMpirunLeavesACheckpointThatIsWhole) {
  write_job(1000000, 20);
  const CommandResult result = disturbed(mpirun_line(2), "[ -d r/checkpoints/step-00000020 ]", "kill -TERM $mpirun");
  EXPECT_NE(result.exit_code, 0);
  expect_whole("TERM");
  const CommandResult again = run(mpirun_line(1) + " --resume auto --set run.steps=20");
  EXPECT_EQ(count(again.out, "finished: r/checkpoints/step-"), 1) << again.out << again.err;
}

TEST_F(MpiSignal, LaunchGivesTimeAndSeventyFiveWheneverASignalComes) {
  const std::string line = tessera + "launch -n 2 job.yaml --run-dir r";
  const std::string started = "pgrep -P $p -f 'train job.yaml' > /dev/null";  // mpirun; not what asks for its version
  struct Moment {
    std::string name, when, signal;
  };
  for (const Moment& moment :
       {Moment{"mpirun begins", started, "TERM"}, Moment{"ranks begin", started + " && sleep 0.15", "INT"},
        Moment{"MPI begins", started + " && sleep 0.4", "HUP"},
        Moment{"a save begins", "ls -d r/checkpoints/.saving-* > /dev/null 2>&1", "TERM"}}) {
    write_job(1000000, 1);
    const CommandResult result = disturbed(line, moment.when, fmt::format("kill -{} $p", moment.signal));
    EXPECT_EQ(result.exit_code, 75) << moment.name << result.err;
    EXPECT_NE(saved(result.out), "nothing") << moment.name << result.out;
    expect_whole(moment.name);
    run("rm -rf r");
  }
  // Some hundred batches each time: the signal comes in the middle.
  write_job(1000000, 0);
  const CommandResult evaluating = disturbed(
      line + " --set 'data.validation=[train.bin]' --set run.evaluate_every=1 --set run.evaluate_batches=100000",
      kTraining, "kill -INT $p");
  EXPECT_EQ(evaluating.exit_code, 75) << evaluating.err;
  expect_whole("evaluation");
}

// As after a Ctrl-C in `tessera launch … 2>&1 | tee log`, which ends tee as well.
TEST_F(MpiSignal, LaunchStopsInOrderWhereNobodyReadsItsWordsAnyLonger) {
  write_job(1000000, 0);
  const CommandResult result =
      run("mkfifo words; " + tessera +
          "launch -n 2 job.yaml --run-dir r > out 2> words & p=$!; exec 3< words; touch out; "
          "until grep -q 'step *3/' out; do sleep 0.02; done; exec 3<&-; kill -INT $p; wait $p; code=$?; cat out; exit "
          "$code");
  EXPECT_EQ(result.exit_code, 75) << result.out;
  EXPECT_NE(saved(result.out), "nothing") << result.out;
  EXPECT_EQ(left(), "");
}

// A step that takes longer than anybody waits.
TEST_F(MpiSignal, ASecondInterruptStopsUnsavedAndTheLogsSaySo) {
  write_job(1000000, 0, "chaos: [{rank: 0, step: 5, fault: slow, seconds: 10}]\n");
  const CommandResult result =
      disturbed(tessera + "launch -n 2 job.yaml --run-dir r", kSlow, "kill -INT $p; sleep 0.5; kill -INT $p");
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(count(result.out, "stopping after"), 0) << result.out;
  for (int rank = 0; rank < 2; ++rank) {
    const RankLog log = read_collective_log(directory / fmt::format("r/collectives/rank-{:05}.log", rank));
    EXPECT_EQ(log.state, LogState::kEndedError);
    EXPECT_EQ(log.exit_code, 130);
  }
  const CommandResult inspected = run(tessera + "inspect r");
  EXPECT_EQ(inspected.exit_code, 0) << inspected.out;
  EXPECT_EQ(left(), "");
}

TEST_F(MpiSignal, ASecondInterruptOfARankWithoutMpirunIsNotedToo) {
  write_job(1000000, 0, "chaos: [{rank: 0, step: 5, fault: slow, seconds: 10}]\n");
  const CommandResult result = run(tessera + "train job.yaml --run-dir r > out & p=$!; until " + kSlow +
                                   "; do sleep 0.05; done; kill -INT $p; sleep 0.3; kill -INT $p; wait $p");
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(read_collective_log(directory / "r/collectives/rank-00000.log").exit_code, 130);
}

}  // namespace
}  // namespace tessera
