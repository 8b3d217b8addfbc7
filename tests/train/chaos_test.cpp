// Deliberate faults on ranks as threads. What ends a process is rehearsed in tests/launcher/mpi_chaos_test.cpp.
#include "runtime/train/chaos.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/config/chaos_faults.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::has;

using nlohmann::json;
using Errors = std::vector<std::string>;

TEST(FaultMarkers, OneFaultFiresOnceAndLeavesWhatItWas) {
  const test::TemporaryDirectory directory;
  const FaultMarkers markers({{.rank = 1, .step = 5, .fault = "kill"}, {.rank = 0, .step = 2, .fault = "throw"}},
                             directory.path());
  EXPECT_FALSE(markers.fired_at(1));
  std::atomic<int> fired = 0;
  std::vector<std::thread> racers;
  for (int i = 0; i < 8; ++i) racers.emplace_back([&] { fired += markers.fire(1) ? 1 : 0; });
  for (std::thread& racer : racers) racer.join();
  EXPECT_EQ(fired, 1);
  EXPECT_FALSE(markers.fired_at(0));
  EXPECT_GT(markers.fired_at(1).value(), 0);
  const json file = json::parse(std::ifstream(directory / "chaos/fault-1.json"));
  EXPECT_EQ(file["rank"], 0);
  EXPECT_EQ(file["step"], 2);
  EXPECT_EQ(file["fault"], "throw");
  EXPECT_EQ(file["unix_ns"], markers.fired_at(1).value());
}

TEST(FaultMarkers, AMarkerOfAnotherFaultIsRefused) {
  const test::TemporaryDirectory directory;
  FaultMarkers({{.rank = 1, .step = 5, .fault = "kill"}}, directory.path()).fire(0);
  const FaultMarkers changed({{.rank = 1, .step = 6, .fault = "kill"}}, directory.path());
  EXPECT_THROW(changed.fired_at(0), ConfigError);
}

TEST(FaultMarkers, AMarkerThatCannotBeWrittenIsAnError) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "chaos") << "a file where the folder should be";
  EXPECT_THROW(FaultMarkers({{.rank = 1, .step = 5, .fault = "kill"}}, directory.path()).fire(0), DeviceError);
}

class ChaosTest : public ::testing::Test {
 protected:
  // Model T on seeded tokens, with these faults; nobody waits long for a rank that does not come.
  JobConfig job(const std::vector<ChaosFault>& faults, std::int64_t steps = 4) {
    JobConfig config = test::model_t(steps);
    config.data.train = {{test::write_tokens(directory_ / "tokens.bin", 4001, 64), 1.0}};
    config.collectives.timeout_seconds = 2;
    config.chaos = faults;
    return config;
  }
  std::string fresh() { return directory_ / fmt::format("run{}", ++runs_); }
  Errors errors(const JobConfig& config, int world = 2) { return test::run_to_errors(config, world, fresh()); }
  std::vector<json> metrics(const JobConfig& config, int world = 2) {
    std::vector<json> events;
    for (const std::string& line : test::run_job(config, world, 1, fresh())) events.push_back(json::parse(line));
    return events;
  }
  std::vector<std::string> hashes(const JobConfig& config, int world = 2) {
    std::vector<std::string> out;
    for (const json& event : metrics(config, world)) {
      if (event.contains("state_hash")) out.push_back(event["state_hash"]);
    }
    return out;
  }

  test::TemporaryDirectory directory_;
  int runs_ = 0;
};

const ChaosFault kSwap{.rank = 1, .step = 2, .fault = "swap_collectives"};

TEST_F(ChaosTest, ASwappedPairIsRefusedByTheProgramCheckOfItsRank) {  // D1
  const std::string line = errors(job({kSwap}))[1];
  EXPECT_TRUE(has(line, "4 program check on dp:0/gather: all_gather block.1 forward, step 2")) << line;
  EXPECT_TRUE(has(line, "instead of tag block.0 forward; it was not issued"));
  EXPECT_TRUE(
      has(line, "\nchaos: swap_collectives of rank 1 at step 2 was found on rank 1 by the program check after "));
}

TEST_F(ChaosTest, ASwappedPairIsSeenByEveryRankBeforeItsDataIsUsed) {  // D1
  JobConfig config = job({kSwap});
  config.collectives.program_check = false;
  const Errors lines = errors(config, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string& line = lines[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(has(line, "4 collective mismatch at call "));
    EXPECT_TRUE(has(line, "ranks 0, 2, 3: all_gather block.0 forward, step 2"));
    EXPECT_TRUE(has(line, "rank 1: tag block.1 forward; none of its data was used"));
    EXPECT_TRUE(has(line, fmt::format("was found on rank {} by the fingerprint after ", rank)));
  }
}

TEST_F(ChaosTest, ASwappedPairIsSeenAtTheEndOfTheStepByItsHistory) {
  JobConfig config = job({kSwap});
  config.collectives.program_check = false;
  config.collectives.fingerprint = "step";
  for (const std::string& line : errors(config)) {
    EXPECT_TRUE(has(line, "4 collective mismatch: the calls of dp:0/gather before call "));
    EXPECT_TRUE(has(line, "rank 0: tag block.0 forward; rank 1: tag block.1 forward")) << "read off the logs";
    EXPECT_TRUE(has(line, " by the history after "));
  }
}

// What all of this is for: nobody complains, every number is finite, and the training is another one.
TEST_F(ChaosTest, ASwappedPairCorruptsSilentlyWhereNobodyLooks) {
  const std::vector<std::string> right = hashes(job({}));
  JobConfig config = job({kSwap});
  config.collectives.program_check = false;
  config.collectives.fingerprint = "off";
  const std::vector<std::string> wrong = hashes(config);
  ASSERT_EQ(wrong.size(), right.size());
  EXPECT_EQ(wrong[1], right[1]);
  EXPECT_NE(wrong[2], right[2]);
}

// D3 and D5: every collective fault, on every kind of call it takes, at 2 and 4 ranks.
TEST_F(ChaosTest, EveryCollectiveFaultEndsTheRunWithCodeFourAndItsName) {
  for (const config::FaultKind& kind : config::fault_kinds()) {
    for (const std::string_view op : kind.ops) {
      for (const bool check : {true, false}) {
        const int world = check ? 2 : 4;
        ChaosFault fault{.rank = 1, .step = 2, .fault = std::string(kind.name)};
        if (kind.ops.size() > 1) fault.op = op;
        JobConfig config = job({fault});
        config.collectives.program_check = check;
        config.collectives.timeout_seconds = 1;
        const Errors lines = errors(config, world);
        const std::string what = fmt::format("{} on {}, check {}", kind.name, op, check);
        EXPECT_TRUE(has(lines[1], "4 ")) << what;
        EXPECT_TRUE(has(lines[1], fmt::format("chaos: {} of rank 1 at step 2 was found on rank 1 by the ", kind.name)))
            << what;
        if (check) {
          EXPECT_TRUE(has(lines[1], "by the program check after ")) << what;
        }
        // A call that is left out shows at the next call of its communicator, or by its absence.
        if (!check && kind.name != "skip_collective") {
          for (const std::string& line : lines) EXPECT_TRUE(has(line, "by the fingerprint after ")) << what;
        }
      }
    }
  }
}

// D6: a skipped update leaves parameters, moments, step and rate as they were. Every step trains on one batch here, so a skip cannot show in the
// numbers that follow.
TEST_F(ChaosTest, ANanLossOnOneRankIsSkippedByAllAndChangesNothing) {
  JobConfig config = job({});
  config.run.overfit_one_batch = true;
  config.schedule.name = "cosine";
  const std::vector<std::string> right = hashes(config);
  config.chaos = {{.rank = 1, .step = 3, .fault = "nan_loss"}};
  std::vector<std::string> rehearsed;
  std::vector<json> skips;
  for (const json& event : metrics(config)) {
    if (event.value("kind", "") == "skip") skips.push_back(event);
    if (event.contains("state_hash")) rehearsed.push_back(event["state_hash"]);
  }
  EXPECT_EQ(rehearsed, right);
  ASSERT_EQ(skips.size(), 1U);
  EXPECT_EQ(skips[0]["step"], 3);
  EXPECT_EQ(skips[0]["ranks"], std::vector<int>{1});
}

TEST_F(ChaosTest, ANanLossOnOneRankStopsAllWhereThePolicySaysSo) {  // D6
  JobConfig config = job({{.rank = 1, .step = 3, .fault = "nan_loss"}});
  config.run.on_nonfinite = "stop";
  const Errors lines = errors(config, 4);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(has(lines[static_cast<std::size_t>(rank)], "7 step 3: loss or gradient is not finite on rank 1\n"));
    EXPECT_TRUE(has(lines[static_cast<std::size_t>(rank)],
                    fmt::format("was found on rank {} by the agreed decision after ", rank)));
  }
}

TEST_F(ChaosTest, AThrowInBackwardIsItsRanksErrorAndTheOthersTimeOut) {
  const Errors lines = errors(job({{.rank = 1, .step = 2, .fault = "throw"}}));
  EXPECT_TRUE(has(lines[1], "70 chaos: thrown in backward of step 2\n"));
  EXPECT_TRUE(has(lines[1], "was found on rank 1 by the error itself after "));
  EXPECT_TRUE(has(lines[0], "no sign of world rank 1 within 2 s"));
  EXPECT_TRUE(has(lines[0], "chaos: throw of rank 1 at step 2 was found on rank 0 by the time-out after "));
}

TEST_F(ChaosTest, AHangThatEndsChangesNoBit) {
  const std::vector<std::string> right = hashes(job({}));
  EXPECT_EQ(hashes(job({{.rank = 1, .step = 2, .fault = "hang", .seconds = 0.05},
                        {.rank = 0, .step = 3, .fault = "slow", .seconds = 0.01},
                        {.rank = 1, .step = 1, .fault = "slow_teardown", .seconds = 0.05}})),
            right);
  const std::string chaos = directory_ / fmt::format("run{}/chaos/fault-", runs_);
  for (const char* k : {"0", "1", "2"}) EXPECT_TRUE(std::filesystem::exists(chaos + k + ".json")) << k;
}

TEST_F(ChaosTest, ATeardownThatComesTooLateIsFoundThere) {
  JobConfig config = job({{.rank = 1, .step = 4, .fault = "slow_teardown", .seconds = 3}});
  config.collectives.timeout_seconds = 1;
  const Errors lines = errors(config);
  EXPECT_TRUE(has(lines[0], "chaos: slow_teardown of rank 1 at step 4 was found on rank 0 by the teardown after "));
}

TEST_F(ChaosTest, AFaultFiresOncePerRunDirectory) {
  const JobConfig config = job({kSwap});
  const std::string run = fresh();
  EXPECT_TRUE(has(test::run_to_errors(config, 2, run)[1], "program check"));
  EXPECT_EQ(test::run_to_errors(config, 2, run), (Errors{"", ""})) << "the restart goes on";
  EXPECT_TRUE(std::filesystem::exists(run + "/attempts/1/config.yaml"));
  EXPECT_TRUE(std::filesystem::exists(run + "/chaos/fault-0.json"));
}

TEST_F(ChaosTest, AnotherFaultUnderAUsedNumberIsRefused) {
  const std::string run = fresh();
  test::run_to_errors(job({kSwap}), 2, run);
  const Errors lines = test::run_to_errors(job({{.rank = 0, .step = 3, .fault = "throw"}}), 2, run);
  EXPECT_TRUE(has(lines[0], "2 chaos[0]: throw of rank 0 at step 3, but "));
  EXPECT_TRUE(has(lines[0], "says that swap_collectives of rank 1 at step 2 fired"));
}

TEST_F(ChaosTest, ASwapNeedsTwoUnitsOfEqualSize) {
  JobConfig config = job({kSwap});
  config.fsdp.wrap = "root";
  for (const std::string& line : errors(config)) {
    EXPECT_TRUE(has(line, "2 chaos: swap_collectives needs two units of equal size that are gathered in a row"));
  }
}

// The broadcast that is rehearsed belongs to the step of every rank, also of a start in which the fault does not fire again.
TEST_F(ChaosTest, ARehearsalBroadcastChangesNoBit) {
  const std::vector<std::string> right = hashes(job({}));
  const JobConfig config = job({{.rank = 1, .step = 2, .fault = "wrong_root"}});
  const std::string run = fresh();
  EXPECT_TRUE(has(test::run_to_errors(config, 2, run)[1], "instead of root 0; it was not issued"));
  std::vector<std::string> again;
  for (const std::string& line : test::run_job(config, 2, 1, run)) {
    const json event = json::parse(line);
    if (event.contains("state_hash")) again.push_back(event["state_hash"]);
  }
  EXPECT_EQ(again, right);
}

}  // namespace
}  // namespace tessera
