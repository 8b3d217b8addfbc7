// What a watchdog makes of what it sees. Clocks, processes and files were asked before: a pure state machine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/collective_log.h"
#include "parallel/collective_verdict.h"
#include "parallel/presence.h"
#include "parallel/teardown.h"

namespace tessera {

struct WatchdogSigns {
  double now = 0;  // seconds, monotonic
  std::vector<PeerSigns> peers;
  TeardownState state = TeardownState::kRunning;  // of this rank
  bool failed = false;                            // this rank is about to say an error of its own
  std::optional<Teardown::Overdue> overdue;
  int num_sigterms = 0;                             // so far
  bool stop_requested = false;                      // by any signal, so far
  std::optional<CollectiveLog::Activity> activity;  // where there is a log
};

enum class WatchdogAct : std::uint8_t {
  kNothing,
  kLookAgainSoon,  // something may be about to show
  kStop,           // a SIGTERM was a request to stop
  kEndUnsaved,     // a second one
  kReportDead,     // of `ranks`
  kReportOverdue,  // the teardown state of this rank
  kReportQueued,   // calls that no stream gets to
  kJudge,          // nothing moves: ask the logs whether somebody waits for somebody; if not, go on
  kEndQuietly,     // a peer has an error to say, and did not end the job
};

struct WatchdogDecision {
  WatchdogAct act = WatchdogAct::kNothing;
  std::vector<int> ranks;
};

class WatchdogRules {
 public:
  // How long a death is looked at before it is reported: a job that is killed as a whole dies within less.
  static constexpr double kConfirm = 0.1;
  // How long a SIGTERM waits for a death to show.
  static constexpr double kSigtermWait = 0.15;
  // A launcher that asks ranks to end kills them a second later, one after the other: their deaths are no news.
  static constexpr double kKillingTime = 5;
  // What a peer that has failed has to say and to end takes less.
  static constexpr double kPatience = 15;
  // Over the timeout, so that a wait that reports it comes first.
  static double grace(double timeout_seconds);

  void set_timeout(double seconds) { timeout_ = seconds; }
  WatchdogDecision decide(const WatchdogSigns& signs);

 private:
  std::optional<WatchdogDecision> decide_on_deaths(const WatchdogSigns& signs, bool peer_failed);
  std::optional<WatchdogDecision> decide_on_sigterm(const WatchdogSigns& signs, bool peer_failed);
  std::optional<WatchdogDecision> decide_on_progress(const WatchdogSigns& signs);

  double timeout_ = 600;
  std::optional<double> dead_since_, failed_since_, sigterm_since_, stop_since_;
  int num_sigterms_ = 0;  // decided on
  std::optional<CollectiveLog::Activity> last_activity_;
  double active_at_ = 0;
};

// Those of the peers that died: the process is gone, and neither left in order nor had an error to say.
std::vector<int> dead_ranks(const std::vector<PeerSigns>& peers);

// Whether a verdict names somebody to whom a wait, a mismatch or a failure can be put down. (A transfer that is slow is none.)
bool names_a_cause(const Verdict& verdict);

}  // namespace tessera
