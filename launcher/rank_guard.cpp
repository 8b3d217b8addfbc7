#include "launcher/rank_guard.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "launcher/stop_signal.h"
#include "runtime/base/log.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

// How long a failed rank waits for the others to fail with the same error before it ends them.
constexpr milliseconds kGrace{500};
// Failed ranks whose peers do not come speak one after another, lowest first; the first of each host silences the others of its host. Between
// hosts the run directory decides; before there is one, this order is all there is.
constexpr milliseconds kSpeakingTurn{50};
constexpr int kMaxTurns = 20;
// How long a rank that spoke holds the word before it aborts, for those whose turn has just come.
constexpr milliseconds kHold{200};
// Who was silenced leaves the end to the speaker, unless that one is gone.
constexpr milliseconds kWaitForTheOthers{10000};

}  // namespace

RankGuard::RankGuard(MpiSession& session, std::function<void(TeardownState)> on_teardown)
    : session_(session),
      presence_(session.rank(), [&](const std::string& mine) { return session.all_gather(mine); }),
      teardown_([this, on_teardown = std::move(on_teardown)](TeardownState state) {
        presence_.show(state);
        if (on_teardown) on_teardown(state);
      }),
      watchdog_(presence_, teardown_,
                {.num_sigterms = num_sigterms,
                 .stop = stop_on_sigterm,
                 .end_unsaved =
                     [this] {
                       // Peers must not take it for a death.
                       presence_.show_failed(static_cast<int>(ExitCode::kStoppedUnsaved));
                       end_unsaved();
                     },
                 .stop_requested = stop_requested,
                 .claim_word = [this] { return claim_word(); },
                 .end_job =
                     [this](const std::string& line) {
                       if (!line.empty()) {
                         log::info("ended by the watchdog: " + line);
                         print_error({ExitCode::kCollective, line});
                       }
                       std::this_thread::sleep_for(line.empty() ? kWaitForTheOthers : kHold);
                       session_.abort(ExitCode::kCollective);
                     }}) {
  watch_sigterm(watchdog_.wake_descriptor());
}

RankGuard::~RankGuard() {
  watch_sigterm(-1);
}

void RankGuard::set_timeout(double seconds) {
  teardown_.set_timeout(seconds);
  watchdog_.set_timeout(seconds);
}

void RankGuard::watch_log(CollectiveLog* log, const std::string& run_directory) {
  mark_on_unsaved_end(log);
  watchdog_.watch_log(log, run_directory);
}

ErrorInfo RankGuard::note(const std::exception_ptr& error) {
  ErrorInfo info = describe(error);
  presence_.show_failed(static_cast<int>(info.code));
  watchdog_.note_failed();
  // From here on a SIGTERM is mpirun's, after another rank's abort: die of it, silently.
  std::signal(SIGTERM, SIG_DFL);
  log::info("ends with an error: " + info.line);  // the file alone: the terminal gets it once, below
  log::flush();
  return info;
}

int RankGuard::leave(ExitCode code) {
  log::close();
  teardown_.enter(TeardownState::kMpi);
  session_.finish();
  teardown_.enter(TeardownState::kGone);
  return static_cast<int>(code);
}

// Any thread.
bool RankGuard::claim_word() {
  if (!session_.claim_last_word()) return false;
  // A claim ends with its process: that nobody holds it now does not mean that nobody did.
  if (std::ranges::any_of(presence_.peers(), &PeerSigns::spoke)) return false;
  presence_.show_spoke();
  return true;
}

// Whether a rank of this host has an error to say that explains one of a collective call.
bool RankGuard::peer_has_a_cause() const {
  return std::ranges::any_of(presence_.peers(), [](const PeerSigns& peer) {
    return peer.visible && peer.failed_code != 0 && peer.failed_code != static_cast<int>(ExitCode::kCollective);
  });
}

// Ends the job for a failure after which it cannot be left in order. found: what all agreed on, if all failed.
void RankGuard::end_job(const ErrorInfo& mine, const std::optional<MpiSession::FoundError>& found) {
  milliseconds turn = kSpeakingTurn * std::min(session_.rank(), kMaxTurns);
  if (found) turn = found->rank == session_.rank() ? milliseconds(0) : turn + kSpeakingTurn * kMaxTurns;
  std::this_thread::sleep_for(turn);
  const bool speaks = !(mine.code == ExitCode::kCollective && peer_has_a_cause()) && claim_word();
  if (speaks) print_error(mine);
  std::this_thread::sleep_for(speaks ? kHold : kWaitForTheOthers);
  session_.abort(found ? found->error.code : mine.code);
}

int RankGuard::run(const std::function<ExitCode()>& body) {
  ErrorInfo mine;
  try {
    return leave(body());
  } catch (const AgreedError& error) {
    log::info("ends with an error of rank " + std::to_string(error.rank) + ": " + error.what());
    if (error.rank == session_.rank()) print_error({error.exit_code, error.what()});
    return leave(error.exit_code);
  } catch (...) {
    mine = note(std::current_exception());
  }
  const auto found = session_.agree_after_failure(mine, kGrace);
  if (!found) end_job(mine, found);
  if (!found->may_finalise || !teardown_.may_enter(TeardownState::kMpi)) end_job(mine, found);
  if (found->rank == session_.rank()) print_error(found->error);
  return leave(found->error.code);
}

void RankGuard::fail(const std::exception_ptr& error) {
  const ErrorInfo mine = note(error);
  end_job(mine, session_.agree_after_failure(mine, kGrace));
}

int run_rank(MpiSession& session, const std::function<ExitCode()>& body) {
  RankGuard guard(session);
  return guard.run(body);
}

}  // namespace tessera
