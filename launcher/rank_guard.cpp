#include "launcher/rank_guard.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

// How long a failed rank waits for the others to fail with the same error before it ends them.
constexpr milliseconds kGrace{500};
// Ranks whose peers do not come abort one after another, lowest first: the first abort ends the rest before they print.
constexpr milliseconds kTurn{100};
constexpr int kMaxTurns = 20;

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
    mine = describe(std::current_exception());
  }
  log::info("ends with an error: " + mine.line);  // the file alone: the terminal gets it once, below
  log::flush();
  if (const auto found = session.agree_after_failure(mine, kGrace)) {
    if (found->rank == session.rank()) print_error(found->error);
    return leave(session, found->error.code);
  }
  std::this_thread::sleep_for(kTurn * std::min(session.rank(), kMaxTurns));
  print_error(mine);
  session.abort(mine.code);
}

}  // namespace tessera
