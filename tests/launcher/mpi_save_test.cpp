// Saves of real processes that are killed, and two jobs on one directory, under a real mpirun.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/train/run_files.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::count;
using test::kTessera;

class MpiSave : public ::testing::Test {
 protected:
  // Model T, hashed every step, with a checkpoint every `every` steps.
  void write_job(int steps, int every) {
    test::write_tokens(directory / "train.bin", 2000, 64);
    std::ofstream(directory / "job.yaml") << fmt::format(
        "run: {{name: t, steps: {}, hash_every: 1}}\n"
        "model: {{num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64}}\n"
        "data: {{train: [train.bin]}}\n"
        "batch: {{global_batch_size: 8, micro_batch_size: 2}}\n"
        "checkpoint: {{every: {}}}\n"
        "reproducibility: {{lanes: 4}}\n"
        "device: {{threads: 1}}\n",
        steps, every);
  }
  CommandResult run(const std::string& command) const {
    return test::run_command(command, {.timeout_seconds = 120, .working_directory = directory.path().string()});
  }
  std::string train(int num_ranks, const std::string& arguments) const {
    return fmt::format("{}{}train job.yaml {}", test::mpirun(num_ranks, "--bind-to none"), kTessera, arguments);
  }
  // What a run ends with that nothing disturbs.
  std::vector<std::string> undisturbed() const {
    EXPECT_EQ(run(train(1, "--run-dir whole")).exit_code, 0);
    return test::steps_of(directory / "whole");
  }

  test::TemporaryDirectory directory;
};

TEST_F(MpiSave, ARankKilledInASaveIsReportedAndTheSameCommandEndsWithEqualBits) {  // C1
  write_job(8, 3);
  const std::vector<std::string> expected = undisturbed();
  for (const int rank : {0, 1}) {
    const std::string name = fmt::format("run{}", rank);
    const std::string command =
        train(2, fmt::format("--run-dir {} --set 'chaos=[{{rank: {}, step: 6, fault: kill_in_save}}]'", name, rank));
    const CommandResult killed = run(command);
    EXPECT_NE(killed.exit_code, 0);
    EXPECT_EQ(count(killed.err,
                    fmt::format("chaos: kill_in_save of rank {} at step 6 was found on rank {} by its death after ",
                                rank, 1 - rank)),
              1)
        << killed.err;
    const std::vector<std::string> left = test::checkpoints_of(directory / name);
    ASSERT_EQ(left.size(), 2U);
    EXPECT_TRUE(left[0].starts_with(".saving-00000006-")) << left[0];
    EXPECT_EQ(left[1], "step-00000003");

    const CommandResult again = run(command);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(count(again.out, fmt::format("checkpoint {} is passed over: the save of step 6 did not end\n", left[0])),
              1)
        << again.out;
    EXPECT_EQ(count(again.out, "resumed step 3, dp 2, certificate ok\n"), 1) << again.out;
    EXPECT_EQ(test::steps_of(directory / name), expected);
  }
}

TEST_F(MpiSave, AFullDiskIsOneLineAndCodeFive) {  // C2
  write_job(8, 3);
  const CommandResult full = run(train(2, "--run-dir a --set 'chaos=[{rank: 1, step: 6, fault: disk_full}]'"));
  EXPECT_EQ(full.exit_code, 5) << full.err;
  EXPECT_EQ(count(full.err, "rank 1: a/checkpoints/.saving-00000006-"), 1) << full.err;
  EXPECT_EQ(count(full.err, "/shard-00001-of-00002.safetensors: disk full: "), 1) << full.err;
  EXPECT_EQ(count(full.err, " bytes needed, 0 free; hint: "), 1) << full.err;
  EXPECT_EQ(count(full.err, "chaos: disk_full of rank 1 at step 6 was found on rank 0 by the save after "), 1)
      << full.err;
}

TEST_F(MpiSave, TwoJobsOnOneDirectoryNeverMixAndAThirdGoesOnWhenBothWereKilled) {  // C12
  write_job(400, 5);
  const std::vector<std::string> expected = undisturbed();
  // The second is refused while the first runs; then all processes of the first and of another second are killed at once.
  // On a fast disk 400 steps could be over before the second comes: the first is slow from step 20 on, which changes no bit.
  const std::string script =
      train(2, "--run-dir a --set 'chaos=[{rank: 0, step: 20, fault: slow, seconds: 0.05}]'") +
      " > first & first=$!; until grep -q 'step *2[0-9]/' first; do sleep 0.02; done; " + train(2, "--run-dir a") +
      " > second 2> refusal; echo $? > code; " + train(2, "--run-dir a") +
      " > other 2>&1 & other=$!; "
      "mine() { for p in $(pgrep -x 'tessera|mpirun|orted'); do "
      "[ \"$(readlink /proc/$p/cwd)\" != \"$PWD\" ] || echo $p; done; }; "
      "kill -9 $(mine); wait $first; wait $other; while [ -n \"$(mine)\" ]; do sleep 0.05; done; true";
  EXPECT_EQ(run(script).exit_code, 0);
  const auto contents = [&](const char* name) {
    std::ifstream file(directory / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(contents("code"), "2\n");
  EXPECT_EQ(count(contents("refusal"), "run directory a: in use by process "), 1) << contents("refusal");
  EXPECT_EQ(count(contents("refusal"), "; hint: wait for it to end, or choose another --run-dir"), 1);
  EXPECT_EQ(contents("second"), "");
  EXPECT_EQ(count(contents("first"), "/400 | "), count(contents("first"), "\nstep ")) << "it did not notice";

  const CommandResult third = run(train(4, "--run-dir a"));
  EXPECT_EQ(third.exit_code, 0) << third.err;
  EXPECT_EQ(count(third.out, "resumed step "), 1) << third.out;
  EXPECT_EQ(test::steps_of(directory / "a"), expected);
  for (const std::string& name : test::checkpoints_of(directory / "a")) EXPECT_TRUE(name.starts_with("step-")) << name;
}

TEST_F(MpiSave, AnUnknownKeyThatMayChangeIsRefusedWithTheNearestOne) {
  write_job(2, 0);
  const CommandResult result = run(train(2, "--run-dir a --allow-change optimizer.weigth_decay"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count(result.err, "--allow-change optimizer.weigth_decay: unknown key; hint: optimizer.weight_decay\n"), 1)
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "a"));
}

}  // namespace
}  // namespace tessera
