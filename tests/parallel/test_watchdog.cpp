#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/watchdog.h"
#include "runtime/base/clock.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// The watchdog of rank 1 of two, whose peer is out of sight, with what it did. Limits are a second and a bit.
class WatchdogOfARank : public ::testing::Test {
 protected:
  WatchdogOfARank() {
    std::filesystem::create_directories(directory / "collectives");
    watchdog.set_timeout(0.2);
    teardown.set_timeout(0.2);
  }

  std::unique_ptr<CollectiveLog> log_of(int rank) const {
    LogOwner owner = LogOwner::this_process();
    owner.run_id = 1;
    owner.world_rank = owner.logical_rank = owner.at.dp = rank;
    owner.world_size = owner.mesh.dp = 2;
    auto log = CollectiveLog::create(directory / ("collectives/rank-0000" + std::to_string(rank) + ".log"), owner, 64);
    log->add_communicator({.group = "dp:0", .channel = "gather", .size = 2, .position = rank, .group_hash = 1});
    return log;
  }
  static CollectiveLog::Handle call(CollectiveLog& log, std::uint64_t sequence) {
    CollectiveIdentity identity;
    identity.sequence = sequence;
    identity.op = CollectiveOp::kAllGather;
    set_name(identity.what, sizeof identity.what, "block.3");
    return log.enqueue(0, identity, sequence + 1, sequence + 1);
  }
  // What it said when it ended the job; empty where it did not within a generous time.
  std::string line() {
    auto future = ended.get_future();
    return future.wait_for(std::chrono::seconds(30)) == std::future_status::ready ? future.get() : "";
  }

  test::TemporaryDirectory directory;
  Presence presence{1, [](const std::string& mine) { return std::vector<std::string>{"1 1 1 3 elsewhere", mine}; }};
  Teardown teardown;
  std::promise<std::string> ended;
  Watchdog watchdog{presence,
                    teardown,
                    {.num_sigterms = [] { return 0; },
                     .stop = [] {},
                     .end_unsaved = [] {},
                     .claim_word = [] { return true; },
                     .end_job = [this](const std::string& text) { ended.set_value(text); }}};
};

TEST_F(WatchdogOfARank, BeatsTheLog) {
  const auto log = log_of(1);
  watchdog.watch_log(log.get(), directory.path().string());
  const double deadline = monotonic_seconds() + 30;
  std::int64_t beat = 0;
  while (beat == 0 && monotonic_seconds() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    beat = read_collective_log(log->path()).heartbeat_ns;
  }
  EXPECT_NE(beat, 0);
  watchdog.watch_log(nullptr, "");
}

TEST_F(WatchdogOfARank, EndsAJobWhoseCallNoStreamGetsTo) {
  const auto log = log_of(1);
  const CollectiveLog::Handle first = call(*log, 0);
  log->started(first);
  log->finished(first);
  call(*log, 1);
  watchdog.watch_log(log.get(), directory.path().string());
  EXPECT_TRUE(line().starts_with("1 call is queued for more than 1.2 s, and no stream gets to it"));
  watchdog.watch_log(nullptr, "");
}

TEST_F(WatchdogOfARank, EndsAJobInWhichAPeerWaitsForThisRank) {
  const auto other = log_of(0);
  other->started(call(*other, 0));
  const auto log = log_of(1);
  watchdog.watch_log(log.get(), directory.path().string());
  const std::string said = line();
  EXPECT_NE(said.find("rank 1 ("), std::string::npos) << said;
  EXPECT_NE(said.find("has not reached all_gather block.3"), std::string::npos) << said;
  watchdog.watch_log(nullptr, "");
}

TEST_F(WatchdogOfARank, GoesOnWhereNothingMovesAndNobodyWaits) {
  const auto log = log_of(1), other = log_of(0);
  watchdog.watch_log(log.get(), directory.path().string());
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(3)), std::future_status::timeout);
  watchdog.watch_log(nullptr, "");
}

TEST_F(WatchdogOfARank, EndsARankWhoseTeardownIsOverdue) {
  for (const TeardownState state : {TeardownState::kStreams, TeardownState::kPeers, TeardownState::kBarrier})
    teardown.enter(state);
  EXPECT_EQ(
      line(),
      "teardown: barrier: waited 0.2 s for every rank to know that all are finished; no other rank of this host is "
      "behind");
}

}  // namespace
}  // namespace tessera
