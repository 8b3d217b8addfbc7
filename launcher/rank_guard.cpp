#include "launcher/rank_guard.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

// How long a failed rank waits for the others to fail with the same error before it ends them.
constexpr milliseconds kGrace{500};
// Failed ranks whose peers do not come speak one after another, lowest first; the first of each host silences the others of its host. Between
// hosts this order is all there is: a line may then appear once per host where the first abort is slow.
constexpr milliseconds kTurn{50};
constexpr int kMaxTurns = 20;
// How long a rank that spoke holds the word before it aborts, for those whose turn has just come.
constexpr milliseconds kHold{200};
// Who was silenced leaves the end to the speaker, unless that one is gone.
constexpr milliseconds kPatience{10000};

// Ends the job for a failure that not all ranks came to share.
[[noreturn]] void end_job(MpiSession& session, const ErrorInfo& error) {
  std::this_thread::sleep_for(kTurn * std::min(session.rank(), kMaxTurns));
  const bool speaks = session.claim_last_word();
  if (speaks) print_error(error);
  std::this_thread::sleep_for(speaks ? kHold : kPatience);
  session.abort(error.code);
}

ErrorInfo note(const std::exception_ptr& error) {
  ErrorInfo info = describe(error);
  // From here on a SIGTERM is mpirun's, after another rank's abort: die of it, silently.
  std::signal(SIGTERM, SIG_DFL);
  log::info("ends with an error: " + info.line);  // the file alone: the terminal gets it once, below
  log::flush();
  return info;
}

int leave(MpiSession& session, ExitCode code) {
  log::close();
  session.finish();
  return static_cast<int>(code);
}

}  // namespace

int run_rank(MpiSession& session, const std::function<ExitCode()>& body) {
  ErrorInfo mine;
  try {
    return leave(session, body());
  } catch (const AgreedError& error) {
    log::info("ends with an error of rank " + std::to_string(error.rank) + ": " + error.what());
    if (error.rank == session.rank()) print_error({error.exit_code, error.what()});
    return leave(session, error.exit_code);
  } catch (...) {
    mine = note(std::current_exception());
  }
  if (const auto found = session.agree_after_failure(mine, kGrace)) {
    if (found->rank == session.rank()) print_error(found->error);
    return leave(session, found->error.code);
  }
  end_job(session, mine);
}

void fail_rank(MpiSession& session, const std::exception_ptr& error) {
  const ErrorInfo mine = note(error);
  const auto found = session.agree_after_failure(mine, kGrace);
  end_job(session, found ? found->error : mine);
}

}  // namespace tessera
