// All that is known of a run from outside: the collective logs of its ranks, which processes live, what cannot be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/collective_log.h"

namespace tessera {

enum class Liveness : std::uint8_t {
  kUnknown,  // of another machine or pid namespace, or hidden by /proc: only its heartbeat speaks
  kRunning,
  kStopped,  // by a signal or a debugger
  kDead,
};

struct UnreadableLog {
  int world_rank = -1;  // from the file's name; -1 where it says none
  std::string path, reason;
};

struct Evidence {
  std::vector<RankLog> logs;       // of one start, ascending world rank
  std::vector<Liveness> liveness;  // one per log
  std::vector<UnreadableLog> unreadable;
  std::vector<std::string> ignored;  // paths of logs that an earlier start left
  std::int64_t now_ns = 0;           // Unix time of reading
};

// Looks for the process that writes the log. proc: see process_state.
Liveness probe(const LogOwner& owner, const std::string& proc = "/proc");

struct EvidenceOptions {
  std::uint64_t max_calls = kMaxLogCapacity;  // of each log, its newest
};
// For ranks of a running job, which may all look at once: 108 KiB of each log. What began more calls ago is not seen.
inline constexpr EvidenceOptions kEvidenceDuringRun{.max_calls = 512};

// Reads collectives/rank-*.log of a run directory. DataError where there is no such folder, no log in it, or none that can
// be read. Of very many ranks fewer calls than max_calls are kept, so that memory stays below about a gigabyte.
Evidence gather_evidence(const std::string& run_directory, const EvidenceOptions& options = {});

}  // namespace tessera
