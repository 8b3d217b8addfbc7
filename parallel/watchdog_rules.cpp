#include "parallel/watchdog_rules.h"

#include <algorithm>

namespace tessera {

std::vector<int> dead_ranks(const std::vector<PeerSigns>& peers) {
  std::vector<int> ranks;
  for (const PeerSigns& peer : peers) {
    if (peer.visible && peer.gone && peer.state != TeardownState::kGone && peer.failed_code == 0)
      ranks.push_back(peer.world_rank);
  }
  return ranks;
}

bool names_a_cause(const Verdict& verdict) {
  if (verdict.outcome == Outcome::kOk) return false;
  return verdict.outcome != Outcome::kStalled || !verdict.culprits.empty() || !verdict.cycle.empty();
}

double WatchdogRules::grace(double timeout_seconds) {
  return std::clamp(timeout_seconds / 4, 1.0, 30.0);
}

WatchdogDecision WatchdogRules::decide(const WatchdogSigns& signs) {
  const bool peer_failed =
      std::ranges::any_of(signs.peers, [](const PeerSigns& peer) { return peer.visible && peer.failed_code != 0; });
  if (!signs.failed) {
    if (const auto decision = decide_on_deaths(signs, peer_failed)) return *decision;
    if (const auto decision = decide_on_sigterm(signs, peer_failed)) return *decision;
  }
  if (signs.overdue) return {WatchdogAct::kReportOverdue, {}};
  if (signs.failed || signs.state != TeardownState::kRunning) return {};
  if (peer_failed) {
    if (!failed_since_) failed_since_ = signs.now;
    if (signs.now - *failed_since_ >= kPatience) return {WatchdogAct::kEndQuietly, {}};
    return {};
  }
  if (const auto decision = decide_on_progress(signs)) return *decision;
  return {};
}

std::optional<WatchdogDecision> WatchdogRules::decide_on_deaths(const WatchdogSigns& signs, bool peer_failed) {
  const std::vector<int> dead = dead_ranks(signs.peers);
  // Where a rank has an error to say, the others are killed for it: theirs are not the deaths to tell of.
  if (dead.empty() || peer_failed || (stop_since_ && signs.now - *stop_since_ < kKillingTime)) {
    dead_since_.reset();
    return std::nullopt;
  }
  if (!dead_since_) dead_since_ = signs.now;
  if (signs.now - *dead_since_ < kConfirm) return WatchdogDecision{WatchdogAct::kLookAgainSoon, {}};
  return WatchdogDecision{WatchdogAct::kReportDead, dead};
}

std::optional<WatchdogDecision> WatchdogRules::decide_on_sigterm(const WatchdogSigns& signs, bool peer_failed) {
  if (signs.num_sigterms == num_sigterms_) return std::nullopt;
  if (!sigterm_since_) sigterm_since_ = signs.now;
  if (signs.now - *sigterm_since_ < kSigtermWait) return WatchdogDecision{WatchdogAct::kLookAgainSoon, {}};
  sigterm_since_.reset();
  const int before = num_sigterms_;
  num_sigterms_ = signs.num_sigterms;
  if (peer_failed) return std::nullopt;  // it says why, and the launcher ends this rank
  // A SIGTERM after another request insists, whichever signal that was.
  if (before > 0 || signs.num_sigterms > 1 || signs.stop_requested)
    return WatchdogDecision{WatchdogAct::kEndUnsaved, {}};
  stop_since_ = signs.now;
  return WatchdogDecision{WatchdogAct::kStop, {}};
}

std::optional<WatchdogDecision> WatchdogRules::decide_on_progress(const WatchdogSigns& signs) {
  if (!signs.activity) return std::nullopt;
  if (!last_activity_ || *last_activity_ != *signs.activity) {
    last_activity_ = signs.activity;
    active_at_ = signs.now;
    return std::nullopt;
  }
  if (signs.now - active_at_ < timeout_ + grace(timeout_)) return std::nullopt;
  active_at_ = signs.now;  // the next look after as long again
  // A call that was started is somebody's wait. One that was only queued is nobody's.
  if (signs.activity->num_queued > 0 && signs.activity->num_in_progress == 0)
    return WatchdogDecision{WatchdogAct::kReportQueued, {}};
  return WatchdogDecision{WatchdogAct::kJudge, {}};
}

}  // namespace tessera
