#include "launcher/run_evidence.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/train/run_lock.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::named_call;
using test::SyntheticRun;

LoggedEnd end_of(const SyntheticRun& run) {
  return logged_end(judge(run.evidence, {.stall_seconds = 0}));
}

TEST(LoggedEnd, NamesARankThatDied) {
  SyntheticRun run(2);
  run.call(0, "dp:0", "gather", 2, named_call(CollectiveOp::kAllGather, "root"), 1, 1);
  run.liveness(1) = Liveness::kDead;
  EXPECT_EQ(end_of(run).why, "rank 1 was lost");
  EXPECT_FALSE(end_of(run).mismatch);
}

TEST(LoggedEnd, TellsCallsThatDoNotBelongTogether) {
  SyntheticRun run(2);
  run.call(0, "dp:0", "gather", 2, named_call(CollectiveOp::kAllGather, "block.0"), 1, 1, 2);
  run.call(1, "dp:0", "gather", 2, named_call(CollectiveOp::kAllGather, "block.1"), 1, 1, 2);
  EXPECT_TRUE(end_of(run).mismatch);
  EXPECT_EQ(end_of(run).why, "ranks made different calls");
}

TEST(LoggedEnd, TellsARankThatLeftItsProgram) {
  SyntheticRun run(2);
  run.log(1).state = LogState::kEndedError;
  run.log(1).exit_code = 4;
  run.log(1).message = "program check on dp:0/gather: …";
  run.liveness(0) = run.liveness(1) = Liveness::kDead;
  EXPECT_TRUE(end_of(run).mismatch);
}

TEST(LoggedEnd, SaysNothingWhereTheLogsDoNot) {
  const SyntheticRun run(2);
  EXPECT_EQ(end_of(run).why, "");
  EXPECT_EQ(logged_end("/nowhere").why, "");
  EXPECT_EQ(start_of_logs("/nowhere"), 0U);
}

TEST(RunOwner, IsWhoHoldsTheLockAndNobodyElse) {
  const test::TemporaryDirectory directory;
  const std::string run = directory.path().string();
  EXPECT_EQ(run_owner(run), std::nullopt);
  std::ofstream(directory / ".lock") << "process 1 on hosta, since yesterday\n";
  EXPECT_EQ(run_owner(run), std::nullopt) << "the file of a dead owner";
  {
    const RunLock lock(run, "hostb");
    const auto owner = run_owner(run);
    ASSERT_TRUE(owner);
    EXPECT_NE(owner->find(" on hostb, since "), std::string::npos) << *owner;
  }
  EXPECT_EQ(run_owner(run), std::nullopt);
}

TEST(EmptyRun, HoldsALockAtMost) {
  const test::TemporaryDirectory directory;
  EXPECT_TRUE(is_empty_run(directory / "absent"));
  EXPECT_TRUE(is_empty_run(directory.path().string()));
  std::ofstream(directory / ".lock") << "x";
  EXPECT_TRUE(is_empty_run(directory.path().string()));
  std::filesystem::create_directory(directory / "logs");
  EXPECT_FALSE(is_empty_run(directory.path().string()));
  EXPECT_EQ(newest_checkpoint(directory.path().string()), "");
}

}  // namespace
}  // namespace tessera
