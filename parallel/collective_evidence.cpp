#include "parallel/collective_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "parallel/process_state.h"
#include "runtime/base/error.h"

namespace fs = std::filesystem;

namespace tessera {
namespace {

constexpr std::uint64_t kMaxCalls = 4'000'000;  // of all logs together
constexpr std::uint64_t kMinCallsPerLog = 256;

// 3 of "rank-00003.log"; -1 where the name is no such name.
int rank_of_name(std::string_view name) {
  constexpr std::string_view prefix = "rank-", suffix = ".log";
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return -1;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  int rank = -1;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return code == std::errc() && end == name.data() + name.size() && name.size() >= 5 ? rank : -1;
}

// Paths by ascending rank.
std::vector<std::pair<int, std::string>> logs_in(const std::string& folder) {
  std::vector<std::pair<int, std::string>> result;
  std::error_code code;
  fs::directory_iterator entries(folder, code);
  if (code) throw DataError(fmt::format("collective logs {}: {}", folder, code.message()));
  for (; entries != fs::directory_iterator(); entries.increment(code)) {
    if (code) throw DataError(fmt::format("collective logs {}: {}", folder, code.message()));
    if (const int rank = rank_of_name(entries->path().filename().string()); rank >= 0)
      result.emplace_back(rank, entries->path().string());
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Keeps the logs of the start that began last.
void drop_earlier_starts(Evidence& evidence) {
  const auto newest =
      std::max_element(evidence.logs.begin(), evidence.logs.end(),
                       [](const RankLog& a, const RankLog& b) { return a.owner.unix_ns < b.owner.unix_ns; });
  if (newest == evidence.logs.end()) return;
  const std::uint64_t run = newest->owner.run_id;
  std::erase_if(evidence.logs, [&](const RankLog& log) {
    if (log.owner.run_id == run) return false;
    evidence.ignored.push_back(log.path);
    return true;
  });
}

}  // namespace

Liveness probe(const LogOwner& owner, const std::string& proc) {
  if (owner.pid_domain == 0 || owner.pid_domain != pid_domain()) return Liveness::kUnknown;
  const auto process = process_state(owner.pid, proc);
  // Whoever has the pid may be another process by now; without its start time nobody can tell.
  if (!process) return may_exist(owner.pid) ? Liveness::kUnknown : Liveness::kDead;
  if (process->start_time != owner.process_start) return Liveness::kDead;
  switch (process->state) {
    case 'Z':
    case 'X': return Liveness::kDead;
    case 'T':
    case 't': return Liveness::kStopped;
    default: return Liveness::kRunning;
  }
}

Evidence gather_evidence(const std::string& run_directory, const EvidenceOptions& options) {
  const std::string folder = run_directory + "/collectives";
  const auto paths = logs_in(folder);
  if (paths.empty()) throw DataError(fmt::format("collective logs {}: no rank-RRRRR.log in it", folder));
  const std::uint64_t calls_per_log = std::min(options.max_calls, std::max(kMaxCalls / paths.size(), kMinCallsPerLog));
  Evidence evidence;
  evidence.logs.reserve(paths.size());
  for (const auto& [rank, path] : paths) {
    try {
      RankLog log = read_collective_log(path, calls_per_log);
      if (log.owner.world_rank != rank)
        throw DataError(fmt::format("collective log {}: says that it is of rank {}", path, log.owner.world_rank));
      evidence.logs.push_back(std::move(log));
    } catch (const DataError& error) {
      evidence.unreadable.push_back({rank, path, error.what()});
    }
  }
  if (evidence.logs.empty()) {
    const std::string more =
        paths.size() > 1 ? fmt::format(" (and so for all {} logs of the run)", paths.size()) : std::string();
    throw DataError(evidence.unreadable.front().reason + more);
  }
  drop_earlier_starts(evidence);
  for (const RankLog& log : evidence.logs) evidence.liveness.push_back(probe(log.owner));
  evidence.now_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return evidence;
}

}  // namespace tessera
