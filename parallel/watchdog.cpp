#include "parallel/watchdog.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/collective_evidence.h"
#include "parallel/collective_verdict.h"
#include "parallel/watchdog_rules.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/rank_text.h"

namespace tessera {
namespace {

constexpr int kBeatMs = 200;
constexpr int kSoonMs = 20;
// Evidence is read from files while a launcher counts to one second: of more ranks than this there is no time for it.
constexpr std::size_t kMaxJudgedRanks = 512;
// How often what is written is sent on its way to a network's file system.
constexpr double kSyncSeconds = 5;
// Whoever asks has waited long enough already; but a heartbeat on a network's file system may come late.
constexpr JudgeOptions kNow{.stall_seconds = 0, .silence_seconds = 30};

// Nothing where the logs cannot be judged.
std::optional<Verdict> verdict_of(const std::string& run_directory, const JudgeOptions& options) {
  if (run_directory.empty()) return std::nullopt;
  try {
    return judge(gather_evidence(run_directory, kEvidenceDuringRun), options);
  } catch (const std::exception& error) {
    log::info(std::string("the collective logs cannot be judged: ") + error.what());
    return std::nullopt;
  }
}

std::string joined(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + "; " + second;
}

}  // namespace

std::string verdict_line(const std::string& run_directory) {
  const auto verdict = verdict_of(run_directory, kNow);
  return verdict ? verdict->line() : "";
}

struct Watchdog::State {
  Presence& presence;
  Teardown& teardown;
  WatchdogHooks hooks;
  int wake = -1;
  std::mutex mutex;  // guards what follows
  CollectiveLog* log = nullptr;
  std::string run_directory;
  std::function<std::string(FoundBy)> note;
  double timeout_seconds = 600;
  std::atomic<bool> failed{false}, ending{false};
  WatchdogRules rules;  // of the thread alone
  std::thread thread;

  State(Presence& p, Teardown& t, WatchdogHooks h) : presence(p), teardown(t), hooks(std::move(h)) {}

  void run() {
    while (!ending.load()) {
      const WatchdogSigns signs = look();
      const WatchdogDecision decision = rules.decide(signs);
      act(decision, signs);
      if (ending.load()) return;
      presence.wait(wake, decision.act == WatchdogAct::kLookAgainSoon ? kSoonMs : kBeatMs);
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t drained = ::read(wake, &count, sizeof count);
    }
  }

  double synced = 0;  // of the watchdog's thread

  WatchdogSigns look() {
    WatchdogSigns signs{.now = monotonic_seconds(),
                        .peers = presence.peers(),
                        .state = teardown.state(),
                        .failed = failed.load(),
                        .overdue = teardown.overdue(monotonic_ns()),
                        .num_sigterms = hooks.num_sigterms(),
                        .stop_requested = hooks.stop_requested()};
    const std::lock_guard lock(mutex);
    rules.set_timeout(timeout_seconds);
    if (log != nullptr) {
      log->beat();
      if (signs.now - synced >= kSyncSeconds) {
        log->sync();
        synced = signs.now;
      }
      // Who is alone waits for nobody.
      if (!signs.peers.empty()) signs.activity = log->activity();
    }
    return signs;
  }

  void act(const WatchdogDecision& decision, const WatchdogSigns& signs) {
    switch (decision.act) {
      case WatchdogAct::kNothing:
      case WatchdogAct::kLookAgainSoon: return;
      case WatchdogAct::kStop: return hooks.stop();
      case WatchdogAct::kEndUnsaved: return hooks.end_unsaved();
      case WatchdogAct::kReportDead:
        return report(FoundBy::kDeadPeer, [&] { return dead_line(decision.ranks, signs); });
      case WatchdogAct::kReportOverdue: return report(FoundBy::kTeardown, [&] { return overdue_line(signs); });
      case WatchdogAct::kReportQueued: return report(FoundBy::kTimeout, [&] { return queued_line(*signs.activity); });
      case WatchdogAct::kJudge: {
        const auto verdict = verdict_of(directory(), {.stall_seconds = timeout()});
        if (verdict && names_a_cause(*verdict)) report(FoundBy::kTimeout, [&] { return verdict->line(); });
        return;
      }
      case WatchdogAct::kEndQuietly: return end("");
    }
  }

  std::string directory() {
    const std::lock_guard lock(mutex);
    return run_directory;
  }
  double timeout() {
    const std::lock_guard lock(mutex);
    return timeout_seconds;
  }

  // The word first: of all ranks that see the same, one reads the logs.
  template <typename Compose>
  void report(FoundBy means, const Compose& compose) {
    // From here on this rank is the one that has something to say; peers that see it die will not report that.
    presence.show_failed(static_cast<int>(ExitCode::kCollective));
    std::string line;
    if (hooks.claim_word()) {
      line = compose();
      const std::lock_guard lock(mutex);
      if (const std::string more = note ? note(means) : ""; !more.empty()) line += '\n' + more;
    }
    end(line);
  }

  void end(const std::string& line) {
    ending.store(true);
    hooks.end_job(line);
  }

  std::string with_hint(const std::string& line) {
    const std::string where = directory();
    std::error_code ignored;
    return where.empty() || !std::filesystem::exists(where, ignored) ? line : line + "; hint: tessera inspect " + where;
  }

  std::string dead_line(const std::vector<int>& ranks, const WatchdogSigns& signs) {
    if (signs.peers.size() < kMaxJudgedRanks) {
      const auto verdict = verdict_of(directory(), kNow);
      if (verdict && names_a_cause(*verdict)) return with_hint(verdict->line());
    }
    const auto peer = std::ranges::find(signs.peers, ranks.front(), &PeerSigns::world_rank);
    std::string line = ranks.size() == 1
                           ? fmt::format("rank {} ({}, pid {}) died", ranks.front(), peer->host, peer->pid)
                           : text_of_ranks(ranks) + " died";
    if (peer->state != TeardownState::kRunning)
      line += fmt::format(" in teardown, waiting for {}", row_of(peer->state).wanted);
    return with_hint(line);
  }

  std::string overdue_line(const WatchdogSigns& signs) {
    const TeardownRow& row = row_of(signs.overdue->state);
    std::string line =
        fmt::format("teardown: {}: waited {:.3g} s for {}", row.name, signs.overdue->limit_seconds, row.wanted);
    std::vector<std::string> late;
    int num_unknown = 0;
    for (const PeerSigns& peer : signs.peers) {
      if (!peer.visible) ++num_unknown;
      if (!peer.visible) continue;
      const Liveness liveness = presence.liveness(peer.world_rank);
      if (peer.state >= row.state && liveness != Liveness::kStopped) continue;
      const std::string_view how = peer.gone ? "dead" : liveness == Liveness::kStopped ? "stopped" : "running";
      late.push_back(
          fmt::format("rank {} ({}, {}) is still in {}", peer.world_rank, peer.host, how, row_of(peer.state).name));
    }
    constexpr std::size_t kMaxShown = 3;
    for (std::size_t i = 0; i < std::min(late.size(), kMaxShown); ++i) line += "; " + late[i];
    if (late.size() > kMaxShown) line += fmt::format("; and {} more", late.size() - kMaxShown);
    if (late.empty()) line += num_unknown == 0 ? "; no other rank is behind" : "; no other rank of this host is behind";
    if (row.state >= TeardownState::kCommunicators) return line;  // the logs say of all that they ended
    const auto verdict = verdict_of(directory(), kNow);
    return verdict && names_a_cause(*verdict) ? joined(line, verdict->line()) : line;
  }

  std::string queued_line(const CollectiveLog::Activity& activity) {
    const double limit = timeout() + WatchdogRules::grace(timeout());
    const auto verdict = verdict_of(directory(), {.stall_seconds = timeout()});
    return with_hint(joined(fmt::format("{} {} queued for more than {:.3g} s, and no stream gets to {}",
                                        activity.num_queued, activity.num_queued == 1 ? "call is" : "calls are", limit,
                                        activity.num_queued == 1 ? "it" : "them"),
                            verdict && names_a_cause(*verdict) ? verdict->line() : ""));
  }
};

Watchdog::Watchdog(Presence& presence, Teardown& teardown, WatchdogHooks hooks)
    : state_(std::make_unique<State>(presence, teardown, std::move(hooks))) {
  state_->wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state_->wake < 0) throw DeviceError(fmt::format("watchdog: no eventfd: {}", std::strerror(errno)));
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Watchdog::~Watchdog() {
  state_->ending.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(state_->wake, &one, sizeof one);
  state_->thread.join();
  ::close(state_->wake);
}

int Watchdog::wake_descriptor() const {
  return state_->wake;
}

void Watchdog::set_timeout(double seconds) {
  const std::lock_guard lock(state_->mutex);
  state_->timeout_seconds = seconds;
}

void Watchdog::watch_log(CollectiveLog* log, const std::string& run_directory) {
  const std::lock_guard lock(state_->mutex);
  state_->log = log;
  if (log != nullptr) state_->run_directory = run_directory;
}

void Watchdog::set_note(std::function<std::string(FoundBy)> note) {
  const std::lock_guard lock(state_->mutex);
  state_->note = std::move(note);
}

void Watchdog::note_failed() {
  state_->failed.store(true);
}

}  // namespace tessera
