#include "runtime/base/error.h"

#include <fmt/format.h>

namespace tessera {

std::string Error::line() const {
  if (hint_.empty()) return what() + notes_;
  return fmt::format("{}; hint: {}{}", what(), hint_, notes_);
}

void Error::add_note(std::string_view note) {
  notes_ += fmt::format("\n{}", note);
}

std::string_view name_of(FoundBy means) {
  switch (means) {
    case FoundBy::kError: return "the error itself";
    case FoundBy::kProgramCheck: return "the program check";
    case FoundBy::kFingerprint: return "the fingerprint";
    case FoundBy::kHistory: return "the history";
    case FoundBy::kTimeout: return "the time-out";
    case FoundBy::kDeadPeer: return "its death";
    case FoundBy::kAgreedDecision: return "the agreed decision";
    case FoundBy::kTeardown: return "the teardown";
  }
  return "?";
}

void require(bool condition, std::string_view what, std::source_location where) {
  if (condition) return;
  throw InternalError(fmt::format("internal: {} ({}:{})", what, where.file_name(), where.line()),
                      "this is a bug; please report it with the run's log", where);
}

}  // namespace tessera
