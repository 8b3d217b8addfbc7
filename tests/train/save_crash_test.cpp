// C1 through the trainer: a job whose save fails, or whose process dies, at any call of a save, on any rank; the same command then goes on from
// the last complete step, says what it passed over, and ends with the bits of the run that was never interrupted.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>

#include "runtime/base/error.h"
#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/run_files.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::FaultKind;
using test::FaultyFileSystem;

constexpr int kRanks = 2;
constexpr int kSavedBefore = 4;  // the step that a stop saved; it goes once step 6 is durable
constexpr int kSavedNow = 6;

class SaveCrash : public testing::TestWithParam<std::tuple<int, FaultKind>> {
 protected:
  SaveCrash() {
    config_.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, 64), 1.0}};
    config_.checkpoint.every = 3;
    config_.checkpoint.keep_latest = 1;
    test::run_job(config_, 1, 1, directory_ / "whole");
    expected_ = test::steps_of(directory_ / "whole");
    std::atomic<int> asked = 0;
    test::run_until(config_, kRanks, 1, directory_ / "base",
                    [&](int rank) { return rank == 0 && ++asked >= kSavedBefore; });
  }
  std::string copy_of_base(const std::string& name) const {
    fs::copy(directory_ / "base", directory_ / name, fs::copy_options::recursive);
    return directory_ / name;
  }
  // Goes on in `path`; call `call` of rank `victim` goes wrong. What each rank ends with; calls: those of the victim.
  std::vector<std::string> go_on(const std::string& path, int victim, std::int64_t call, FaultKind kind,
                                 std::vector<std::string>& calls, bool for_real = false) const {
    std::vector<FaultyFileSystem> files(kRanks);
    files[static_cast<std::size_t>(victim)].plan(call, kind);
    if (for_real) files[static_cast<std::size_t>(victim)].kill_for_real();
    std::vector<std::string> ends = test::run_with(
        config_, kRanks, path, {.files = [&](int rank) { return &files[static_cast<std::size_t>(rank)]; }});
    calls = files[static_cast<std::size_t>(victim)].calls();
    return ends;
  }
  // The same in a process of its own, which dies there.
  void die(const std::string& path, int victim, std::int64_t call, FaultKind kind) const {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::vector<std::string> calls;
      go_on(path, victim, call, kind, calls, true);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it did not come to call " << call;
  }

  test::TemporaryDirectory directory_;
  JobConfig config_ = test::model_t(8);
  std::vector<std::string> expected_;
};

// Those of the first save alone.
std::vector<std::string> of_first_save(std::vector<std::string> calls, int victim) {
  const std::string begin = victim == 0 ? "mkdir .saving-" : "create ";
  const auto begins = [&](const std::string& call) { return call.starts_with(begin); };
  const auto first = std::ranges::find_if(calls, begins);
  if (first != calls.end()) calls.erase(std::find_if(first + 1, calls.end(), begins), calls.end());
  return calls;
}

TEST_P(SaveCrash, AtAnyCallGoesOnFromTheLastCompleteStepWithEqualBits) {
  const auto [victim, kind] = GetParam();
  std::vector<std::string> calls;
  ASSERT_EQ(go_on(copy_of_base("undisturbed"), victim, 0, FaultKind::kFail, calls), std::vector<std::string>(kRanks));
  calls = of_first_save(calls, victim);
  // Rank 0: folder, shard (create, write, sync, close), manifest (the same), sync, rename, sync; retention: rename, sync, remove. Rank 1: its shard.
  ASSERT_EQ(calls.size(), victim == 0 ? 15U : 4U) << fmt::format("{}", fmt::join(calls, "\n"));
  const auto published =
      std::ranges::find_if(calls, [](const auto& call) { return call.starts_with("rename .saving"); });
  const std::int64_t rename = published - calls.begin() + 1;  // of rank 1: past its last call

  for (std::int64_t call = 1; call <= static_cast<std::int64_t>(calls.size()); ++call) {
    const std::string where =
        fmt::format("rank {}, call {}: {}", victim, call, calls[static_cast<std::size_t>(call) - 1]);
    const std::string path = copy_of_base(std::to_string(call));
    const bool is_retention = call > rename + 1;
    const bool is_complete = call > rename || (call == rename && kind == FaultKind::kTornKill);
    if (kind == FaultKind::kFail) {
      std::vector<std::string> ignored;
      const std::vector<std::string> ends = go_on(path, victim, call, kind, ignored);
      if (is_retention) {
        EXPECT_EQ(ends, std::vector<std::string>(kRanks)) << where << ": the new checkpoint counts";
        EXPECT_EQ(test::steps_of(path), expected_) << where;
        continue;
      }
      EXPECT_TRUE(ends[0].starts_with(fmt::format("5 rank {}: {}/checkpoints", victim, path))) << where << ends[0];
      EXPECT_NE(ends[0].find(": injected"), std::string::npos) << where << ends[0];
      EXPECT_EQ(ends[0], ends[1]) << where << ": all ranks end by one error";
    } else {
      die(path, victim, call, kind);
    }
    // What is there but is no checkpoint.
    std::vector<std::string> unfinished = test::checkpoints_of(path);
    std::erase_if(unfinished, [](const std::string& name) { return !name.starts_with(".saving-"); });
    EXPECT_LE(unfinished.size(), kind == FaultKind::kFail ? 0U : 1U) << where;

    EXPECT_EQ(test::run_with(config_, call % 2 == 0 ? 4 : 1, path, {}), std::vector<std::string>(call % 2 == 0 ? 4 : 1))
        << where;
    EXPECT_EQ(test::steps_of(path), expected_) << where;
    const std::string log = test::logs_of(path);
    EXPECT_NE(log.find(fmt::format("resumed step {}, dp 2 → ", is_complete ? kSavedNow : kSavedBefore)),
              std::string::npos)
        << where << log;
    for (const std::string& name : unfinished) {
      EXPECT_NE(log.find(fmt::format("checkpoint {} is passed over: the save of step {} did not end", name, kSavedNow)),
                std::string::npos)
          << where << log;
    }
    EXPECT_EQ(test::checkpoints_of(path), std::vector<std::string>{"step-00000008"}) << where << ": nothing is left";
  }
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<int, FaultKind>>& info) {
  const FaultKind kind = std::get<1>(info.param);
  const char* ends = kind == FaultKind::kFail ? "Fails" : kind == FaultKind::kKill ? "Dies" : "DiesInTheMiddle";
  return fmt::format("Rank{}{}", std::get<0>(info.param), ends);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SaveCrash,
                         testing::Combine(testing::Values(0, 1),
                                          testing::Values(FaultKind::kFail, FaultKind::kKill, FaultKind::kTornKill)),
                         name_of_case);

}  // namespace
}  // namespace tessera
