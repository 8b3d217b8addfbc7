#include <gtest/gtest.h>

#include <vector>

#include "parallel/watchdog_rules.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using Ranks = std::vector<int>;

// Rank 0 of three, and what it sees.
struct Scene {
  WatchdogSigns signs{.peers = {{.world_rank = 1, .visible = true}, {.world_rank = 2, .visible = true}}};
  WatchdogRules rules;

  WatchdogDecision at(double now) {
    signs.now = now;
    return rules.decide(signs);
  }
  PeerSigns& peer(int rank) { return signs.peers.at(static_cast<std::size_t>(rank) - 1); }
};

TEST(WatchdogRules, SaysNothingWhileAllIsWell) {
  Scene scene;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(scene.at(i).act, WatchdogAct::kNothing);
}

TEST(WatchdogRules, ReportsADeadPeerAfterASecondLook) {
  Scene scene;
  scene.peer(2).gone = true;
  EXPECT_EQ(scene.at(10).act, WatchdogAct::kLookAgainSoon);
  const WatchdogDecision decision = scene.at(10.11);
  EXPECT_EQ(decision.act, WatchdogAct::kReportDead);
  EXPECT_EQ(decision.ranks, Ranks{2});
}

TEST(WatchdogRules, WhoLeftInOrderIsNoDeadPeer) {
  Scene scene;
  scene.peer(1).gone = true;
  scene.peer(1).state = TeardownState::kGone;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(scene.at(i).act, WatchdogAct::kNothing);
}

TEST(WatchdogRules, WhoDiesInTheMiddleOfItsTeardownIsOne) {
  for (const TeardownState state : {TeardownState::kStreams, TeardownState::kPeers, TeardownState::kBarrier,
                                    TeardownState::kCommunicators, TeardownState::kMpi}) {
    Scene scene;
    scene.peer(1).gone = true;
    scene.peer(1).state = state;
    scene.at(1);
    EXPECT_EQ(scene.at(2).act, WatchdogAct::kReportDead);
  }
}

TEST(WatchdogRules, LeavesTheWordToAPeerThatHasAnErrorOfItsOwn) {
  Scene scene;
  scene.peer(1).failed_code = static_cast<int>(ExitCode::kInternal);
  scene.peer(1).gone = true;
  scene.peer(2).gone = true;  // the launcher's work, after rank 1's abort
  for (double now = 0; now < WatchdogRules::kPatience; now += 1) EXPECT_EQ(scene.at(now).act, WatchdogAct::kNothing);
  EXPECT_EQ(scene.at(WatchdogRules::kPatience + 1).act, WatchdogAct::kEndQuietly) << "but does not wait for ever";
}

TEST(WatchdogRules, AnUnseenPeerIsNeverDead) {
  Scene scene;
  scene.peer(1) = {.world_rank = 1, .visible = false, .gone = true};
  EXPECT_EQ(scene.at(1).act, WatchdogAct::kNothing);
  EXPECT_EQ(scene.at(9).act, WatchdogAct::kNothing);
}

TEST(WatchdogRules, ASigtermIsARequestToStopWhereAllPeersLive) {
  Scene scene;
  scene.signs.num_sigterms = 1;
  EXPECT_EQ(scene.at(10).act, WatchdogAct::kLookAgainSoon);
  EXPECT_EQ(scene.at(10.2).act, WatchdogAct::kStop);
  EXPECT_EQ(scene.at(10.4).act, WatchdogAct::kNothing);
}

TEST(WatchdogRules, ASigtermBesideADeadPeerIsNoRequest) {
  Scene scene;
  scene.signs.num_sigterms = 1;
  scene.peer(1).gone = true;
  EXPECT_EQ(scene.at(10).act, WatchdogAct::kLookAgainSoon);
  EXPECT_EQ(scene.at(10.11).act, WatchdogAct::kReportDead);
}

TEST(WatchdogRules, ADeathThatShowsWithinTheWaitOfASigtermIsFound) {
  Scene scene;
  scene.signs.num_sigterms = 1;
  EXPECT_EQ(scene.at(10).act, WatchdogAct::kLookAgainSoon);
  scene.peer(1).gone = true;
  EXPECT_EQ(scene.at(10.1).act, WatchdogAct::kLookAgainSoon);
  EXPECT_EQ(scene.at(10.21).act, WatchdogAct::kReportDead);
}

TEST(WatchdogRules, ASigtermAfterAnErrorOfAPeerIsItsAbort) {
  Scene scene;
  scene.signs.num_sigterms = 1;
  scene.peer(1).failed_code = 70;
  scene.at(10);
  EXPECT_EQ(scene.at(10.2).act, WatchdogAct::kNothing);
}

TEST(WatchdogRules, RanksKilledTogetherAfterASigtermAreNoNews) {
  Scene scene;
  scene.signs.num_sigterms = 1;
  scene.at(10);
  EXPECT_EQ(scene.at(10.2).act, WatchdogAct::kStop);
  scene.peer(1).gone = true;  // a second later, one after the other
  EXPECT_EQ(scene.at(11).act, WatchdogAct::kNothing);
  EXPECT_EQ(scene.at(11.2).act, WatchdogAct::kNothing);
  EXPECT_EQ(scene.at(15.3).act, WatchdogAct::kLookAgainSoon) << "this rank was not killed: then it is";
  EXPECT_EQ(scene.at(15.5).act, WatchdogAct::kReportDead);
}

TEST(WatchdogRules, ASecondSigtermDoesNotWait) {
  Scene scene;
  scene.signs.num_sigterms = 1;
  scene.at(10);
  EXPECT_EQ(scene.at(10.2).act, WatchdogAct::kStop);
  scene.signs.num_sigterms = 2;
  scene.at(11);
  EXPECT_EQ(scene.at(11.2).act, WatchdogAct::kEndUnsaved);
}

TEST(WatchdogRules, ASigtermAfterAnyOtherRequestDoesNotWait) {  // a second Ctrl-C, of which mpirun makes a SIGTERM
  Scene scene;
  scene.signs.stop_requested = true;
  EXPECT_EQ(scene.at(10).act, WatchdogAct::kNothing);
  scene.signs.num_sigterms = 1;
  EXPECT_EQ(scene.at(11).act, WatchdogAct::kLookAgainSoon) << "it may still be that a peer died";
  EXPECT_EQ(scene.at(11.2).act, WatchdogAct::kEndUnsaved);
}

TEST(WatchdogRules, AnErrorOfThisRankGoesFirst) {
  Scene scene;
  scene.signs.failed = true;
  scene.signs.num_sigterms = 2;
  scene.peer(1).gone = true;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(scene.at(i).act, WatchdogAct::kNothing);
}

TEST(WatchdogRules, ReportsAnOverdueTeardown) {
  Scene scene;
  scene.signs.state = TeardownState::kMpi;
  scene.signs.overdue = Teardown::Overdue{TeardownState::kMpi, 20};
  EXPECT_EQ(scene.at(1).act, WatchdogAct::kReportOverdue);
  scene.signs.failed = true;
  EXPECT_EQ(scene.at(2).act, WatchdogAct::kReportOverdue) << "after an error that all ranks had, too";
}

TEST(WatchdogRules, NoticesCallsThatNoStreamGetsTo) {
  Scene scene;
  scene.rules.set_timeout(8);
  scene.signs.activity = CollectiveLog::Activity{.num_added = 3, .num_queued = 1};
  EXPECT_EQ(scene.at(0).act, WatchdogAct::kNothing);
  EXPECT_EQ(scene.at(9.9).act, WatchdogAct::kNothing) << "8 s and a quarter of it";
  EXPECT_EQ(scene.at(10.1).act, WatchdogAct::kReportQueued);
}

TEST(WatchdogRules, AsksTheLogsWhereNothingMovesAndGoesOnWhereTheyNameNobody) {
  Scene scene;
  scene.rules.set_timeout(8);
  scene.signs.activity = CollectiveLog::Activity{.num_added = 3, .num_started = 3, .num_finished = 3};
  EXPECT_EQ(scene.at(0).act, WatchdogAct::kNothing);
  EXPECT_EQ(scene.at(10.1).act, WatchdogAct::kJudge);
  EXPECT_EQ(scene.at(10.3).act, WatchdogAct::kNothing);
  EXPECT_EQ(scene.at(20.3).act, WatchdogAct::kJudge);
  scene.signs.activity->num_added = 4;
  EXPECT_EQ(scene.at(30.4).act, WatchdogAct::kNothing) << "it moved";
}

TEST(WatchdogRules, ASlowTransferNamesNobody) {
  Verdict verdict;
  verdict.outcome = Outcome::kStalled;
  EXPECT_FALSE(names_a_cause(verdict)) << "all members are in it";
  verdict.culprits = {1};
  EXPECT_TRUE(names_a_cause(verdict));
  verdict = {};
  EXPECT_FALSE(names_a_cause(verdict));
  verdict.outcome = Outcome::kMissing;
  EXPECT_TRUE(names_a_cause(verdict));
}

}  // namespace
}  // namespace tessera
