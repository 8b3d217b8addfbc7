#include "launcher/restart_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace tessera {

bool may_start_again(int exit_code, bool mismatch) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kCollective: return !mismatch;
    case ExitCode::kInternal: return true;
    default: return false;
  }
}

std::string meaning_of(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kDone: return "done";
    case ExitCode::kUsage: return "usage or config";
    case ExitCode::kData: return "data";
    case ExitCode::kCollective: return "a rank was lost";
    case ExitCode::kCheckpoint: return "checkpoint";
    case ExitCode::kDevice: return "device, memory or disk";
    case ExitCode::kNonFinite: return "non-finite training";
    case ExitCode::kInternal: return "an internal error";
    case ExitCode::kStopped: return "stopped on request";
    case ExitCode::kStoppedUnsaved: return "stopped on request, unsaved";
  }
  return fmt::format("code {}", exit_code);
}

std::chrono::seconds pause_before_next(int attempts_without_progress) {
  constexpr int kLongest = 30;
  if (attempts_without_progress <= 0) return std::chrono::seconds(0);
  return std::chrono::seconds(std::min(kLongest, 1 << std::min(attempts_without_progress - 1, 5)));
}

}  // namespace tessera
