#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "parallel/collective_verdict.h"
#include "runtime/base/error.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::named_call;
using test::SyntheticRun;
using Ranks = std::vector<int>;

// Two calls that all ranks finished in the first second.
SyntheticRun run_of(int world_size) {
  SyntheticRun run(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    run.gather(rank, "root", 0.1, 0.2, 0.3);
    run.gather(rank, "block.0", 0.4, 0.5, 0.6);
  }
  return run;
}

void end(SyntheticRun& run, int rank, int exit_code, const std::string& message = "") {
  run.log(rank).state = exit_code == 0 ? LogState::kEndedOk : LogState::kEndedError;
  run.log(rank).exit_code = exit_code;
  run.log(rank).message = message;
  run.liveness(rank) = Liveness::kDead;
}

TEST(Verdict, ARunThatEndedWellIsOk) {
  SyntheticRun run = run_of(3);
  for (int rank = 0; rank < 3; ++rank) end(run, rank, 0);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kOk);
  EXPECT_EQ(verdict.line(), "3 ranks ended, step 7; 6 calls compared");
}

TEST(Verdict, ARunThatStoppedOnRequestIsOk) {
  SyntheticRun run = run_of(2);
  end(run, 0, 130);
  end(run, 1, 75);
  EXPECT_EQ(judge(run.evidence).outcome, Outcome::kOk);
}

TEST(Verdict, AShortWaitOfARunningJobIsOrdinary) {
  SyntheticRun run = run_of(2);
  run.gather(0, "block.1", 1, 1);
  run.now(30);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kOk);
  ASSERT_EQ(verdict.waits.size(), 1U);
  EXPECT_EQ(verdict.waits[0].absent, (Ranks{1}));
  EXPECT_FALSE(verdict.waits[0].long_enough);
  EXPECT_EQ(verdict.line(), "2 ranks running, step 7; 5 calls compared");
}

TEST(Verdict, TheFirstDifferingCallIsNamedWithTheFieldsThatDiffer) {
  SyntheticRun run = run_of(4);
  for (int rank = 0; rank < 4; ++rank) {
    CollectiveIdentity call = named_call(CollectiveOp::kAllGather, rank == 1 ? "block.9" : "block.1");
    if (rank == 1) call.num_elements = 2048;
    run.call(rank, "dp:0", "gather", 4, call, 1, 1);
  }
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMismatch);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
  EXPECT_EQ(
      verdict.line(),
      "collective mismatch in call 2 of dp:0/gather: ranks 0, 2, 3: count 1024, tag block.1 forward; rank 1: count "
      "2048, tag block.9 forward");
}

TEST(Verdict, TwoRanksHaveNoMajority) {
  SyntheticRun run = run_of(2);
  run.gather(0, "block.1", 1, 1);
  run.gather(1, "block.2", 1, 1);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMismatch);
  EXPECT_EQ(verdict.culprits, Ranks{});
  ASSERT_EQ(verdict.divergences.size(), 1U);
  EXPECT_EQ(verdict.divergences[0].sides[0].fields, (std::vector<std::string>{"tag block.1 forward"}));
  EXPECT_EQ(verdict.divergences[0].sides[1].fields, (std::vector<std::string>{"tag block.2 forward"}));
}

TEST(Verdict, ThreeRanksThatAllDifferAreThreeSides) {
  SyntheticRun run = run_of(3);
  for (int rank = 0; rank < 3; ++rank) run.gather(rank, fmt::format("block.{}", rank), 1, 1);
  const Verdict verdict = judge(run.evidence);
  ASSERT_EQ(verdict.divergences.size(), 1U);
  EXPECT_EQ(verdict.divergences[0].sides.size(), 3U);
  EXPECT_EQ(verdict.culprits, Ranks{});
}

TEST(Verdict, SwappedLeftOutAndExtraCallsAreTold) {
  const auto hint = [](const std::vector<std::string>& of_rank_1) {
    SyntheticRun run = run_of(3);
    for (const int rank : {0, 2})
      for (const char* what : {"a", "b", "c"}) run.gather(rank, what, 1, 1, 1);
    for (const std::string& what : of_rank_1) run.gather(1, what, 1, 1, 1);
    const Verdict verdict = judge(run.evidence);
    EXPECT_EQ(verdict.divergences.front().sequence, 2U);
    return verdict.divergences.front().hint;
  };
  EXPECT_EQ(hint({"b", "a", "c"}), "rank 1 made calls 2 and 3 in the other order");
  EXPECT_EQ(hint({"b", "c"}), "rank 1 left out call 2");
  EXPECT_EQ(hint({"b"}), "rank 1 made call 3 where the others made call 2: left out, or in another order");
  EXPECT_EQ(hint({"x", "a", "b", "c"}), "rank 1 made one call too many");
  EXPECT_EQ(hint({"x", "b", "c"}), "");
}

TEST(Verdict, OfSeveralCommunicatorsTheOneWhoseCallCameFirstLeads) {
  SyntheticRun run(2);
  for (int rank = 0; rank < 2; ++rank) {
    const auto call = [&](const char* what) { return named_call(CollectiveOp::kAllGather, what); };
    run.call(rank, "dp:0", "gather", 2, call(rank == 0 ? "a" : "b"), 5, 5);
    run.call(rank, "world", "reduce", 2, call("same"), 1, 1, 1);
    run.call(rank, "world", "reduce", 2, call(rank == 0 ? "c" : "d"), 2, 2);
  }
  const Verdict verdict = judge(run.evidence);
  ASSERT_EQ(verdict.divergences.size(), 2U);
  EXPECT_EQ(verdict.divergences[0].group, "world");
  EXPECT_EQ(verdict.divergences[0].sequence, 1U);
  EXPECT_EQ(verdict.divergences[1].group, "dp:0");
}

TEST(Verdict, ADifferenceOlderThanTheLogsIsStillNoticed) {
  SyntheticRun run(2);
  for (int rank = 0; rank < 2; ++rank) {
    run.gather(rank, rank == 0 ? "a" : "b", 1, 1, 1);
    for (int i = 0; i < 5; ++i) run.gather(rank, "same", 2, 2, 2);
    auto& calls = run.log(rank).calls;
    calls.erase(calls.begin(), calls.begin() + 3);
  }
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMismatch);
  EXPECT_EQ(verdict.line(),
            "collective mismatch before call 3 of dp:0/gather, the oldest that the logs hold: rank 0 against rank 1");
}

TEST(Verdict, ARecordThatIsLostDoesNotMatter) {
  SyntheticRun run = run_of(3);
  for (int rank = 0; rank < 3; ++rank) run.gather(rank, "block.1", 1, 1, 1);
  run.log(0).calls.erase(run.log(0).calls.begin() + 2);
  run.log(1).calls.erase(run.log(1).calls.begin());
  EXPECT_EQ(judge(run.evidence).outcome, Outcome::kOk);
  run.gather(0, "block.2", 2, 2, 2);
  run.gather(2, "block.3", 2, 2, 2);
  EXPECT_EQ(judge(run.evidence).divergences.at(0).sequence, 3U);
}

CollectiveIdentity message(CollectiveOp op, int sender, int receiver, std::uint64_t count = 8) {
  CollectiveIdentity identity = named_call(op, "activation");
  identity.root = sender;
  identity.peer = receiver;
  identity.num_elements = count;
  return identity;
}

TEST(Verdict, MessagesArePairedBySenderReceiverAndNumber) {
  SyntheticRun run(3);
  const auto add = [&](int rank, CollectiveOp op, int sender, int receiver, std::uint64_t count) {
    run.call(rank, "pp:0", "pipe", 3, message(op, sender, receiver, count), 1, 1, 1);
  };
  // Rank 1 takes its messages in another order than they are sent: each still meets its own.
  add(0, CollectiveOp::kSend, 0, 1, 8);
  add(0, CollectiveOp::kSend, 0, 1, 16);
  add(2, CollectiveOp::kSend, 2, 1, 32);
  add(1, CollectiveOp::kRecv, 2, 1, 32);
  add(1, CollectiveOp::kRecv, 0, 1, 8);
  add(1, CollectiveOp::kRecv, 0, 1, 16);
  EXPECT_EQ(judge(run.evidence).outcome, Outcome::kOk);
  add(0, CollectiveOp::kSend, 0, 1, 64);
  add(1, CollectiveOp::kRecv, 0, 1, 65);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMismatch);
  EXPECT_EQ(verdict.line(), "collective mismatch in call 2 of pp:0/pipe: rank 0: count 64; rank 1: count 65");
}

// The group is world ranks 2 and 3, which are group ranks 0 and 1.
TEST(Verdict, SendersReceiversAndRootsAreWorldRanks) {
  SyntheticRun run(4);
  run.call(2, "pp:1", "pipe", 2, message(CollectiveOp::kSend, 0, 1, 8), 1, 1, -1, 0);
  run.call(3, "pp:1", "pipe", 2, message(CollectiveOp::kRecv, 0, 1, 8), 1, 1, -1, 1);
  run.now(2);
  const Verdict waiting = judge(run.evidence);
  EXPECT_EQ(waiting.waits[0].call.text(), "send activation forward, step 7, 2 → 3, 8 fp32 (call 0 of pp:1/pipe)");
  EXPECT_EQ(waiting.ranks[3].pending[0].text(), "recv activation forward, step 7, 2 → 3, 8 fp32 (call 0 of pp:1/pipe)");
  for (const int rank : {2, 3}) {
    CollectiveIdentity call = named_call(CollectiveOp::kBroadcast, "embedding");
    call.root = rank - 2;
    run.call(rank, "dp:0", "reduce", 2, call, 1, 1, -1, rank - 2);
  }
  EXPECT_EQ(judge(run.evidence).line(), "collective mismatch in call 0 of dp:0/reduce: rank 2: root 2; rank 3: root 3");
}

TEST(Verdict, AMemberWhoseWorldRankNoLogTellsIsCalledAGroupRank) {
  SyntheticRun run(4);
  run.call(2, "other", "pipe", 3, message(CollectiveOp::kSend, 0, 2), 1, 1, -1, 0);
  for (const int rank : {2, 3}) {
    CollectiveIdentity call = named_call(CollectiveOp::kBroadcast, "embedding");
    call.root = rank == 2 ? 0 : 2;
    run.call(rank, "other", "reduce", 3, call, 1, 1, -1, rank - 2);
  }
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.ranks[2].pending[0].text(),
            "send activation forward, step 7, 0 → 2, 8 fp32, by group rank (call 0 of other/pipe)");
  EXPECT_EQ(verdict.line(),
            "collective mismatch in call 0 of other/reduce: rank 2: root group rank 0; rank 3: root group rank 2");
}

TEST(Verdict, AReceiverWaitsForItsSender) {
  SyntheticRun run(2);
  run.call(1, "pp:0", "pipe", 2, message(CollectiveOp::kRecv, 0, 1), 1, 1);
  run.call(0, "pp:0", "pipe", 2, message(CollectiveOp::kSend, 0, 1), 1);  // enqueued, not started
  run.now(100);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_EQ(verdict.culprits, (Ranks{0}));
}

TEST(Verdict, TheRankThatOthersWaitForIsNamed) {
  SyntheticRun run = run_of(4);
  for (const int rank : {0, 2, 3}) run.gather(rank, "block.1", 1, 1);
  run.now(43);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
  EXPECT_EQ(
      verdict.line(),
      "rank 1 (hostA, running) has not reached all_gather block.1 forward, step 7, 1024 fp32 (call 2 of "
      "dp:0/gather), where ranks 0, 2, 3 wait since 22:13:21 UTC (42 s); last finished all_gather block.0 forward, "
      "step 7, 1024 fp32 (call 1 of dp:0/gather)");
}

TEST(Verdict, AStoppedRankIsNamedAtOnce) {
  SyntheticRun run = run_of(3);
  run.gather(0, "block.1", 1, 1);
  run.gather(2, "block.1", 1, 1);
  run.liveness(1) = Liveness::kStopped;
  run.now(2);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
  EXPECT_NE(verdict.line().find("rank 1 (hostA, stopped) has not reached"), std::string::npos) << verdict.line();
}

// 0 and 1 wait for 2 in x, 2 and 3 wait for 4 in y, 4 waits in nothing.
TEST(Verdict, WaitsAreFollowedToTheRankThatWaitsForNobody) {
  SyntheticRun run(5);
  const auto call = [](const char* what) { return named_call(CollectiveOp::kAllReduce, what); };
  run.call(0, "tp:0", "compute", 3, call("x"), 1, 1, -1, 0);
  run.call(1, "tp:0", "compute", 3, call("x"), 1, 1, -1, 1);
  run.call(2, "tp:0", "compute", 3, call("w"), 0, 0, 0, 2);
  run.call(0, "tp:0", "compute", 3, call("w"), 0, 0, 0, 0);
  run.log(0).calls.clear();
  run.log(1).calls.clear();
  run.log(2).calls.clear();
  for (int rank = 0; rank < 3; ++rank) run.log(rank).communicators.clear();
  run.call(0, "tp:0", "compute", 3, call("x"), 1, 1, -1, 0);
  run.call(1, "tp:0", "compute", 3, call("x"), 1, 1, -1, 1);
  run.call(2, "dp:0", "gather", 3, call("y"), 1, 1, -1, 0);
  run.call(3, "dp:0", "gather", 3, call("y"), 1, 1, -1, 1);
  run.call(4, "world", "reduce", 5, call("z"), 0, 0, 0, 4);
  // Members that have called nothing yet are known all the same.
  run.call(2, "tp:0", "compute", 3, call("x"), 60, -1, -1, 2);
  run.call(4, "dp:0", "gather", 3, call("y"), 60, -1, -1, 2);
  run.now(60);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_EQ(verdict.culprits, (Ranks{4}));
  EXPECT_EQ(verdict.cycle, Ranks{});
}

TEST(Verdict, RanksThatWaitForEachOtherAreNamedAsACycle) {
  SyntheticRun run(2);
  run.call(0, "dp:0", "gather", 2, named_call(CollectiveOp::kAllGather, "a"), 1, 1);
  run.call(0, "world", "reduce", 2, named_call(CollectiveOp::kAllReduce, "b"), 1);
  run.call(1, "world", "reduce", 2, named_call(CollectiveOp::kAllReduce, "b"), 1, 1);
  run.call(1, "dp:0", "gather", 2, named_call(CollectiveOp::kAllGather, "a"), 1);
  run.now(40);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_EQ(verdict.culprits, Ranks{});
  Ranks cycle = verdict.cycle;
  std::sort(cycle.begin(), cycle.end());
  EXPECT_EQ(cycle, (Ranks{0, 1}));
  EXPECT_EQ(verdict.line().substr(0, 37), "ranks 0, 1 wait for each other: rank ");
}

TEST(Verdict, ACallThatAllAreInAndNobodyFinishesIsAStall) {
  SyntheticRun run = run_of(2);
  run.gather(0, "block.1", 1, 1);
  run.gather(1, "block.1", 1, 2);
  run.now(40);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_NE(verdict.line().find("and all members are in it"), std::string::npos) << verdict.line();
}

TEST(Verdict, ADeadRankIsMissing) {
  SyntheticRun run = run_of(4);
  for (const int rank : {0, 2, 3}) run.gather(rank, "block.1", 1, 1);
  run.liveness(1) = Liveness::kDead;
  run.now(2);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMissing);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
  EXPECT_EQ(
      verdict.line(),
      "rank 1 (hostA, pid 1001) died in step 7; ranks 0, 2, 3 waited 1.00 s for it in all_gather block.1 forward, "
      "step 7, 1024 fp32 (call 2 of dp:0/gather)");
}

TEST(Verdict, TheRanksThatNoticedADeathAreNotItsCause) {
  SyntheticRun run = run_of(3);
  run.gather(0, "block.1", 1, 1);
  run.gather(2, "block.1", 1, 1);
  run.liveness(1) = Liveness::kDead;
  end(run, 0, 4, "rank 1 died");
  end(run, 2, 4, "rank 1 died");
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMissing);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
}

TEST(Verdict, AllRanksKilledInAStepAreListedWithTheirLastCalls) {
  SyntheticRun run = run_of(3);
  run.gather(0, "block.1", 1, 1);
  for (int rank = 0; rank < 3; ++rank) run.liveness(rank) = Liveness::kDead;
  run.log(2).step = 6;
  run.now(1000);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMissing);
  EXPECT_EQ(verdict.culprits, Ranks{});
  EXPECT_EQ(verdict.line(),
            "all 3 ranks died in steps 6 to 7; rank 0: in all_gather block.1 forward, step 7, 1024 fp32 (call 2 of "
            "dp:0/gather)");
  EXPECT_NE(verdict.text().find("  rank 1 (hostA, pid 1001): died, step 7, 2 calls, last sign of life 999 s ago\n"
                                "    last finished: all_gather block.0 forward, step 7, 1024 fp32 (call 1 of "
                                "dp:0/gather)\n"),
            std::string::npos)
      << verdict.text();
}

TEST(Verdict, OfAllDeadRanksTheOneThatOthersHadWaitedForIsNamed) {
  SyntheticRun run = run_of(3);
  for (const int rank : {0, 1}) {
    run.gather(rank, "block.1", 1, 1);
    run.log(rank).heartbeat_ns = SyntheticRun::kStart + 4'000'000'000;
  }
  for (int rank = 0; rank < 3; ++rank) run.liveness(rank) = Liveness::kDead;
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.culprits, (Ranks{2}));
  EXPECT_NE(verdict.line().find("all 3 ranks died in step 7, rank 2 perhaps first; ranks 0, 1 waited 3.00 s"),
            std::string::npos)
      << verdict.line();
}

TEST(Verdict, ARankWithoutALogIsMissing) {
  SyntheticRun run = run_of(3);
  run.gather(0, "block.1", 1, 1);
  run.gather(1, "block.1", 1, 1);
  run.evidence.logs.pop_back();
  run.evidence.liveness.pop_back();
  run.now(121);
  Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMissing);
  EXPECT_EQ(verdict.culprits, (Ranks{2}));
  ASSERT_EQ(verdict.waits.size(), 1U);
  EXPECT_EQ(verdict.waits[0].absent, (Ranks{2}));
  run.evidence.unreadable.push_back({2, "x/rank-00002.log", "collective log x/rank-00002.log: is empty"});
  verdict = judge(run.evidence);
  EXPECT_EQ(verdict.line().substr(0, 50), "rank 2: collective log x/rank-00002.log: is empty;");
}

TEST(Verdict, ARunWhoseRanksCreateTheirLogsIsStarting) {
  SyntheticRun run = run_of(4);
  run.gather(0, "block.1", 1, 1);
  run.gather(1, "block.1", 1, 1);
  for (int rank = 2; rank < 4; ++rank) {
    run.evidence.logs.pop_back();
    run.evidence.liveness.pop_back();
  }
  run.log(1).owner.unix_ns += 10'000'000'000;  // the newest
  run.log(1).owner.monotonic_ns += 10'000'000'000;
  const JudgeOptions at_once{.stall_seconds = 0};
  for (const double now : {2.0, 129.0}) {
    run.now(now);
    for (const Verdict& verdict : {judge(run.evidence), judge(run.evidence, at_once)}) {
      EXPECT_EQ(verdict.outcome, Outcome::kOk);
      EXPECT_FALSE(verdict.trouble());
      EXPECT_EQ(verdict.culprits, Ranks{});
      EXPECT_EQ(verdict.line(), "starting: 2 of 4 ranks running, ranks 2, 3 without a log yet");
    }
  }
  run.now(131);
  for (const Verdict& verdict : {judge(run.evidence), judge(run.evidence, at_once)}) {
    EXPECT_EQ(verdict.outcome, Outcome::kMissing);
    EXPECT_TRUE(verdict.trouble());
    EXPECT_EQ(verdict.culprits, (Ranks{2, 3}));
  }
}

TEST(Verdict, WhereARankHasDiedNobodyIsAboutToStart) {
  SyntheticRun run = run_of(3);
  run.evidence.logs.pop_back();
  run.evidence.liveness.pop_back();
  run.now(2);
  EXPECT_EQ(judge(run.evidence).outcome, Outcome::kOk);
  run.liveness(1) = Liveness::kStopped;
  EXPECT_EQ(judge(run.evidence).culprits, (Ranks{1}));
  run.liveness(1) = Liveness::kDead;
  EXPECT_EQ(judge(run.evidence).culprits, (Ranks{1, 2}));
  run.liveness(1) = Liveness::kRunning;
  end(run, 0, 0);
  EXPECT_EQ(judge(run.evidence).culprits, (Ranks{2}));
}

TEST(Verdict, ARankOfAnotherHostIsJudgedByItsHeartbeat) {
  SyntheticRun run = run_of(2);
  run.log(1).owner.host = "hostB";
  run.liveness(1) = Liveness::kUnknown;
  run.now(120);
  EXPECT_EQ(judge(run.evidence).outcome, Outcome::kOk);
  EXPECT_EQ(judge(run.evidence, {.stall_seconds = 0}).outcome, Outcome::kOk);
  run.now(150);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMissing);
  EXPECT_EQ(verdict.line().substr(0, 62), "rank 1 (hostB, pid 1001) gave no sign of life for 149 s; last ");
  run.log(1).heartbeat_ns = SyntheticRun::kStart + 95'000'000'000;
  EXPECT_EQ(judge(run.evidence).outcome, Outcome::kOk);
  EXPECT_EQ(judge(run.evidence, {.silence_seconds = 40}).outcome, Outcome::kMissing);
  EXPECT_THROW(judge(run.evidence, {.silence_seconds = 0}), InternalError);
}

// Ranks 0 and 1 on hostA, from where it is judged, 2 and 3 on hostB. All but rank 1 wait in the third call.
SyntheticRun two_hosts() {
  SyntheticRun run = run_of(4);
  for (const int rank : {0, 2, 3}) run.gather(rank, "block.1", 1, 1);
  for (const int rank : {2, 3}) {
    run.log(rank).owner.host = "hostB";
    run.liveness(rank) = Liveness::kUnknown;
  }
  return run;
}

TEST(Verdict, RanksOfAnotherHostThatWaitAreNotTheCause) {
  for (const Liveness of_rank_1 : {Liveness::kRunning, Liveness::kStopped}) {
    SyntheticRun run = two_hosts();
    run.liveness(1) = of_rank_1;
    for (const double now : {11.0, 500.0}) {  // their heartbeats young and old
      run.now(now);
      const Verdict verdict = judge(run.evidence, {.stall_seconds = 0});
      EXPECT_EQ(verdict.outcome, Outcome::kStalled) << verdict.line();
      EXPECT_EQ(verdict.culprits, (Ranks{1}));
    }
  }
}

TEST(Verdict, ASilentRankIsNotTheCauseWhereALivingOneIsWaitedFor) {
  SyntheticRun run = two_hosts();
  // Rank 3 is in nothing as far as its log is seen here.
  run.log(3).calls.pop_back();
  --run.log(3).communicators[0].num_started;
  run.now(500);
  const Verdict verdict = judge(run.evidence, {.stall_seconds = 0});
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_EQ(verdict.culprits, (Ranks{1, 3}));
}

TEST(Verdict, ASilentRankThatAllOthersWaitForIsMissing) {
  SyntheticRun run = two_hosts();
  run.gather(1, "block.1", 1, 1);
  run.log(3).calls.pop_back();
  --run.log(3).communicators[0].num_started;
  run.now(500);
  const Verdict verdict = judge(run.evidence, {.stall_seconds = 0});
  EXPECT_EQ(verdict.outcome, Outcome::kMissing);
  EXPECT_EQ(verdict.culprits, (Ranks{3}));
}

TEST(Verdict, AnErrorOfItsOwnIsTheCauseOfThoseThatFollow) {
  SyntheticRun run = run_of(3);
  end(run, 1, 3, "data/train.bin: id 9 outside the vocabulary");
  end(run, 0, 4, "rank 1 is gone");
  run.liveness(2) = Liveness::kDead;  // taken along
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kFailed);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
  EXPECT_EQ(verdict.line(),
            "rank 1 (hostA) ended with exit code 3 in step 7: data/train.bin: id 9 outside the vocabulary");
}

TEST(Verdict, ARefusedCallIsTheFaultOfTheRankThatRefusedIt) {
  SyntheticRun run = run_of(3);
  run.gather(0, "block.1", 1, 1);
  run.gather(2, "block.1", 1, 1);
  end(run, 1, 4, "call 2 of dp:0/gather is not the program's");
  end(run, 0, 4, "a peer is gone");
  run.liveness(2) = Liveness::kDead;
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kFailed);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
}

TEST(Verdict, OfRanksThatAgreedToEndOnlyTheOneWithTheErrorFailed) {
  SyntheticRun run = run_of(4);
  const std::string message = "data/train.bin: id 9 outside the vocabulary";
  for (int rank = 0; rank < 4; ++rank) {
    end(run, rank, 3, message);
    run.log(rank).culprit = 2;
  }
  Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kFailed);
  EXPECT_EQ(verdict.culprits, (Ranks{2}));
  EXPECT_EQ(verdict.ranks[2].state, RankState::kFailed);
  EXPECT_EQ(verdict.ranks[2].ended_with, -1);
  EXPECT_EQ(verdict.ranks[3].state, RankState::kFollowed);
  EXPECT_EQ(verdict.ranks[3].ended_with, 2);
  EXPECT_EQ(verdict.line(), "rank 2 (hostA) ended with exit code 3 in step 7, ranks 0, 1, 3 with it: " + message);
  EXPECT_NE(verdict.text().find("rank 3 (hostA, pid 1003): ended with it, step 7, 2 calls, the error of rank 2, exit "
                                "code 3\n"),
            std::string::npos)
      << verdict.text();

  // It was killed before it could write that down: the others know.
  run.log(2).state = LogState::kRunning;
  verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kFailed);
  EXPECT_EQ(verdict.culprits, (Ranks{2}));
  EXPECT_EQ(verdict.line(), "rank 2 (hostA) ended with exit code 3 in step 7, ranks 0, 1, 3 with it: " + message);
}

TEST(Verdict, ATimeOutIsAStallOfTheRankThatDidNotCome) {
  SyntheticRun run = run_of(3);
  run.gather(0, "block.1", 1, 1);
  run.gather(2, "block.1", 1, 1);
  end(run, 0, 4, "timed out");
  run.now(11);
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kStalled);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
}

TEST(Verdict, WaitingIsChargedToTheLastToArrive) {
  SyntheticRun run(3);
  // Call 0: rank 2 comes 3 s after rank 0 and 2 s after rank 1. Call 1: rank 0 comes 1 s after both.
  const double arrivals[2][3] = {{1, 2, 4}, {6, 5, 5}};
  for (int rank = 0; rank < 3; ++rank) {
    run.gather(rank, "a", 0, arrivals[0][rank], 5);
    run.gather(rank, "b", 5, arrivals[1][rank], 7);
  }
  run.log(1).owner.unix_ns -= 500'000'000;  // another clock: its stamps are as much larger
  run.log(1).owner.monotonic_ns -= 500'000'000;
  const Verdict verdict = judge(run.evidence);
  EXPECT_EQ(verdict.num_timed, 2U);
  EXPECT_DOUBLE_EQ(verdict.waiting_seconds, 7);
  EXPECT_DOUBLE_EQ(verdict.ranks[2].blamed_seconds, 5);
  EXPECT_DOUBLE_EQ(verdict.ranks[0].blamed_seconds, 2);
  EXPECT_EQ(verdict.ranks[1].num_last, 0U);
  EXPECT_DOUBLE_EQ(verdict.ranks[0].waiting_seconds, 3);
  EXPECT_DOUBLE_EQ(verdict.ranks[1].waiting_seconds, 3);
  EXPECT_NE(verdict.text().find("waiting for peers: 7.00 s over 2 collectives\n"
                                "  rank 2 (hostA) came last in 1 of them: 71% of the waiting\n"),
            std::string::npos)
      << verdict.text();
}

TEST(Verdict, ALineIsShortWhateverTheNames) {
  SyntheticRun run = run_of(2);
  end(run, 1, 3, std::string(300, 'x') + "·" + std::string(212, 'y'));
  EXPECT_LE(judge(run.evidence).line().size(), kMaxVerdictLine);
  end(run, 1, 3, "two\nlines");
  EXPECT_EQ(judge(run.evidence).line().find('\n'), std::string::npos);
}

TEST(Evidence, KnowsWhichProcessesLive) {
  EXPECT_EQ(probe(LogOwner::this_process()), Liveness::kRunning);
  LogOwner other = LogOwner::this_process();
  ++other.process_start;  // the pid of a process that came later
  EXPECT_EQ(probe(other), Liveness::kDead);
  other = LogOwner::this_process();
  ++other.pid_domain;
  EXPECT_EQ(probe(other), Liveness::kUnknown);

  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const LogOwner own = LogOwner::this_process();
    if (write(ready[1], &own.process_start, sizeof(own.process_start)) < 0) _exit(1);
    for (;;) pause();
  }
  LogOwner owner = LogOwner::this_process();
  owner.pid = child;
  ASSERT_EQ(read(ready[0], &owner.process_start, sizeof(owner.process_start)), 8);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(probe(owner), Liveness::kStopped);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(probe(owner), Liveness::kDead);  // a zombie
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(probe(owner), Liveness::kDead);
  close(ready[0]);
  close(ready[1]);
}

// As with hidepid: /proc has no entry for a process of somebody else.
TEST(Evidence, AProcessThatProcDoesNotShowIsDeadOnlyWhereTheKernelSaysSo) {
  const test::TemporaryDirectory empty;
  LogOwner owner = LogOwner::this_process();
  EXPECT_EQ(probe(owner, empty.path()), Liveness::kUnknown);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  owner.pid = child;
  EXPECT_EQ(probe(owner, empty.path()), Liveness::kDead);
  for (const std::int64_t nobody : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40U}) {
    owner.pid = nobody;  // kill() takes 0 and -1 for groups of processes
    EXPECT_EQ(probe(owner, empty.path()), Liveness::kDead);
  }
}

class EvidenceOfARun : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(directory_ / "collectives"); }
  std::string path(int rank) const { return directory_ / fmt::format("collectives/rank-{:05}.log", rank); }
  void write_log(int rank, int world_size, std::uint64_t run_id = 1, int says_rank = -1) const {
    LogOwner owner = LogOwner::this_process();
    owner.run_id = run_id;
    owner.unix_ns += static_cast<std::int64_t>(run_id) * 1'000'000'000;
    owner.world_rank = owner.logical_rank = says_rank < 0 ? rank : says_rank;
    owner.world_size = owner.mesh.dp = world_size;
    CollectiveLog::create(path(rank), owner, 4)->end(0);
  }
  test::TemporaryDirectory directory_;
};

TEST_F(EvidenceOfARun, UnreadableLogsAreNamedAndTheOthersJudged) {
  write_log(0, 4);
  std::ofstream(path(1)) << "step 3 seq 17 group dp:0";
  write_log(2, 4, 1, 0);
  write_log(3, 4);
  std::ofstream(directory_ / "collectives/notes.txt") << "x";
  const Evidence evidence = gather_evidence(directory_.path());
  EXPECT_EQ(evidence.logs.size(), 2U);
  ASSERT_EQ(evidence.unreadable.size(), 2U);
  EXPECT_EQ(evidence.unreadable[1].reason, "collective log " + path(2) + ": says that it is of rank 0");
  const Verdict verdict = judge(evidence);
  EXPECT_EQ(verdict.outcome, Outcome::kMissing);
  EXPECT_EQ(verdict.culprits, (Ranks{1, 2}));
}

TEST_F(EvidenceOfARun, LogsThatAnEarlierStartLeftAreNotLookedAt) {
  for (int rank = 0; rank < 4; ++rank) write_log(rank, 4, 1);
  for (int rank = 0; rank < 2; ++rank) write_log(rank, 2, 2);
  const Evidence evidence = gather_evidence(directory_.path());
  EXPECT_EQ(evidence.logs.size(), 2U);
  EXPECT_EQ(evidence.ignored, (std::vector<std::string>{path(2), path(3)}));
  EXPECT_EQ(judge(evidence).outcome, Outcome::kOk);
}

TEST_F(EvidenceOfARun, OfEachLogNoMoreCallsAreReadThanAskedFor) {
  for (int rank = 0; rank < 2; ++rank) {
    LogOwner owner = LogOwner::this_process();
    owner.world_rank = rank;
    owner.world_size = 2;
    const auto log = CollectiveLog::create(path(rank), owner, 1024);
    const int world = log->add_communicator({.group = "world", .channel = "reduce", .size = 2, .position = rank});
    for (std::uint64_t sequence = 0; sequence < 600; ++sequence) {
      CollectiveIdentity call = named_call(CollectiveOp::kAllReduce, "loss");
      call.sequence = sequence;
      log->enqueue(world, call, sequence + 1, sequence + 1);
    }
  }
  EXPECT_EQ(gather_evidence(directory_.path()).logs[1].calls.size(), 600U);
  const Evidence evidence = gather_evidence(directory_.path(), kEvidenceDuringRun);
  for (const RankLog& log : evidence.logs) {
    ASSERT_EQ(log.calls.size(), 512U);
    EXPECT_EQ(log.calls.back().identity.sequence, 599U);
    EXPECT_EQ(log.communicators[0].num_enqueued, 600U);
  }
}

TEST_F(EvidenceOfARun, NothingToReadIsOneError) {
  EXPECT_THROW(gather_evidence(directory_.path()), DataError);
  std::ofstream(path(0)) << "text";
  std::ofstream(path(1)) << "text";
  try {
    gather_evidence(directory_.path());
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.line(),
              "collective log " + path(0) +
                  ": is no collective log (its first bytes are others) (and so for all 2 logs of the run)");
  }
  EXPECT_THROW(gather_evidence(directory_ / "gone"), DataError);
}

}  // namespace
}  // namespace tessera
