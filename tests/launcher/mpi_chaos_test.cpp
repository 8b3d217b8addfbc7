// Faults that end or stop a process, under a real mpirun: the job ends, with a code that says so, and nothing is left.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::count;
using test::kTessera;

class MpiChaos : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_tokens(directory / "train.bin", 2000, 64);
    std::ofstream(directory / "job.yaml")
        << "run: {name: t, steps: 6}\n"
           "model: {num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64}\n"
           "data: {train: [train.bin]}\n"
           "batch: {global_batch_size: 8, micro_batch_size: 2}\n"
           "reproducibility: {lanes: 4}\n"
           "collectives: {timeout_seconds: 3}\n"
           "device: {threads: 1}\n";
  }

  CommandResult run(const std::string& command) const {
    return test::run_command(command, {.timeout_seconds = 120, .working_directory = directory.path().string()});
  }
  CommandResult train(int num_ranks, const std::string& fault, const std::string& more = "") const {
    return run(fmt::format("{}{}train job.yaml --run-dir run --set 'chaos=[{{{}}}]' {}",
                           test::mpirun(num_ranks, "--bind-to none"), kTessera, fault, more));
  }
  // Processes of this program whose working directory is the test's; mpirun's last moments get the time to pass.
  std::string left() const {
    return run(fmt::format("for i in $(seq 100); do left=; for p in $(pgrep -x 'tessera|mpirun|orted'); do "
                           "[ \"$(readlink /proc/$p/cwd)\" != {} ] || left=\"$left $p\"; done; "
                           "[ -n \"$left\" ] || break; sleep 0.1; done; printf '%s' \"$left\"",
                           directory.path().string()))
        .out;
  }
  std::string log(int rank) const {
    std::ostringstream text;
    text << std::ifstream(directory / fmt::format("run/logs/rank-{:05}.log", rank)).rdbuf();
    return text.str();
  }

  test::TemporaryDirectory directory;
};

TEST_F(MpiChaos, ASwappedPairEndsWithCodeFourAndTwoLines) {  // D1
  const CommandResult result =
      train(2, "rank: 1, step: 3, fault: swap_collectives", "--set collectives.program_check=false");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(count(result.err, "collective mismatch at call "), 1) << result.err;
  EXPECT_EQ(count(result.err, "chaos: swap_collectives of rank 1 at step 3 was found on rank "), 1) << result.err;
  EXPECT_EQ(count(result.err, " by the fingerprint after "), 1) << result.err;
  EXPECT_EQ(count(log(1), "chaos: swap_collectives of rank 1 at step 3 now"), 1);
  EXPECT_EQ(left(), "");
}

// D8: the survivors report the death at once, with the call that the rank never reached. The code says that the job failed, whatever the rank
// itself said; bare mpirun makes it 1 or 137.
TEST_F(MpiChaos, ARankThatLeavesOrIsKilledIsReportedByAnotherAtOnce) {
  for (const char* fault : {"exit", "kill"}) {
    const CommandResult result = train(4, fmt::format("rank: 1, step: 3, fault: {}", fault));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(count(result.err, ") died in step 3; "), 1) << result.err;
    EXPECT_EQ(count(result.err, " for it in "), 1) << result.err;
    EXPECT_EQ(count(result.err, fmt::format("chaos: {} of rank 1 at step 3 was found on rank ", fault)), 1)
        << result.err;
    EXPECT_EQ(count(result.err, " by its death after "), 1) << result.err;
    EXPECT_EQ(left(), "");
    EXPECT_EQ(run(kTessera + "inspect run").exit_code, 4);
    std::filesystem::remove_all(directory / "run");
  }
}

// D8: mpirun does not notice; the others do, and name the rank and the call that it never reached.
TEST_F(MpiChaos, ARankThatIsStoppedIsFoundByTheTimeOut) {
  const CommandResult result = train(2, "rank: 1, step: 3, fault: stop");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(count(result.err, "no sign of world rank 1 within 3 s; rank 1 ("), 1) << result.err;
  EXPECT_EQ(count(result.err, "stopped) has not reached "), 1) << result.err;
  EXPECT_EQ(count(result.err, "chaos: stop of rank 1 at step 3 was found on rank 0 by the time-out after "), 1)
      << result.err;
  EXPECT_EQ(left(), "");
}

TEST_F(MpiChaos, ARankThatHangsIsFoundByTheTimeOut) {
  for (const char* backend : {"shm", "mpi"}) {
    const CommandResult result =
        train(4, "rank: 2, step: 3, fault: hang", fmt::format("--set collectives.backend={}", backend));
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_EQ(count(result.err, "no sign of world rank 2 within 3 s; rank 2 ("), 1) << result.err;
    EXPECT_EQ(count(result.err, "chaos: hang of rank 2 at step 3 was found on rank "), 1) << result.err;
    EXPECT_EQ(left(), "");
    std::filesystem::remove_all(directory / "run");
  }
}

TEST_F(MpiChaos, AThrowInBackwardEndsWithItsOwnCode) {  // D9
  const CommandResult result = train(2, "rank: 1, step: 3, fault: throw");
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_EQ(count(result.err, "] chaos: thrown in backward of step 3\n"), 1) << result.err;
  EXPECT_EQ(count(result.err, "chaos: throw of rank 1 at step 3 was found on rank 1 by the error itself after "), 1)
      << result.err;
  EXPECT_EQ(left(), "");
}

TEST_F(MpiChaos, ANanLossIsSkippedByAllRanksAndToldOnce) {  // D6
  const CommandResult result = train(4, "rank: 3, step: 2, fault: nan_loss");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "chaos: nan_loss of rank 3 at step 2 was found on rank 0 by the agreed decision after "),
            1)
      << result.out;
  EXPECT_EQ(count(result.out, "step 2 skipped: loss or gradient not finite on rank 3"), 1) << result.out;
  EXPECT_EQ(count(result.out, "step 6/6"), 1) << result.out;
}

TEST_F(MpiChaos, ARestartGoesOnPastTheFault) {
  EXPECT_EQ(train(2, "rank: 1, step: 3, fault: wrong_count").exit_code, 4);
  const CommandResult again = train(2, "rank: 1, step: 3, fault: wrong_count");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(count(again.out, "chaos    wrong_count of rank 1 at step 3: fired in an earlier start, not again"), 1)
      << again.out;
}

TEST_F(MpiChaos, ARankBeyondTheWorldIsRefused) {
  const CommandResult result = train(2, "rank: 2, step: 3, fault: kill");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count(result.err, "chaos[0].rank: 2 is not one of the 2 ranks"), 1) << result.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

}  // namespace
}  // namespace tessera
