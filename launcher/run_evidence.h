// What a run directory tells its launcher: how an attempt ended, what it had saved, and whether somebody still holds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/collective_verdict.h"

namespace tessera {

// Which start left the collective logs that are there; 0: none.
std::uint64_t start_of_logs(const std::string& run_directory);

struct LoggedEnd {
  std::string why;        // "rank 1 was lost"; "": the logs do not tell
  bool mismatch = false;  // ranks made calls that do not belong together: another start would make them again
};
LoggedEnd logged_end(const Verdict& verdict);
// Of the start that the logs are of, once it has ended.
LoggedEnd logged_end(const std::string& run_directory);

// The newest complete checkpoint's folder ("step-00000057"); "": none.
std::string newest_checkpoint(const std::string& run_directory);

// Whether nothing is there that a start has left, a lock's file apart.
bool is_empty_run(const std::string& run_directory);

// Who holds the lock of the run directory ("process 12 on hosta, since …"); nothing where nobody does.
std::optional<std::string> run_owner(const std::string& run_directory);

}  // namespace tessera
