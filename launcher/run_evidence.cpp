#include "launcher/run_evidence.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <system_error>

#include "checkpoint/catalog.h"
#include "checkpoint/file_system.h"
#include "checkpoint/folders.h"
#include "runtime/base/rank_text.h"
#include "runtime/train/program_check.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool is_wrong_call(const RankReport& rank) {
  return rank.state == RankState::kFailed && rank.message.starts_with(kProgramCheckError);
}

}  // namespace

LoggedEnd logged_end(const Verdict& verdict) {
  const std::string who = verdict.culprits.empty() ? "" : text_of_ranks(verdict.culprits);
  const bool many = verdict.culprits.size() > 1;
  if (verdict.outcome == Outcome::kMismatch) return {"ranks made different calls", true};
  if (std::ranges::any_of(verdict.ranks, is_wrong_call)) return {"a rank left its step program", true};
  if (who.empty()) return {};
  switch (verdict.outcome) {
    case Outcome::kMissing: return {who + (many ? " were lost" : " was lost"), false};
    case Outcome::kStalled: return {who + " did not answer", false};
    case Outcome::kFailed: return {who + " failed", false};
    default: return {};
  }
}

std::uint64_t start_of_logs(const std::string& run_directory) {
  try {
    return gather_evidence(run_directory, {.max_calls = 1}).logs.front().owner.run_id;
  } catch (const std::exception&) {
    return 0;
  }
}

LoggedEnd logged_end(const std::string& run_directory) {
  try {
    return logged_end(judge(gather_evidence(run_directory), {.stall_seconds = 0}));
  } catch (const std::exception&) {
    return {};
  }
}

std::string newest_checkpoint(const std::string& run_directory) {
  try {
    const auto files = make_posix_file_system();
    const auto found = find_latest(*files, run_directory + "/checkpoints");
    return found.step ? step_folder_name(*found.step) : "";
  } catch (const std::exception&) {
    return "";
  }
}

bool is_empty_run(const std::string& run_directory) {
  std::error_code code;
  for (fs::directory_iterator entry(run_directory, code), end; !code && entry != end; entry.increment(code))
    if (entry->path().filename() != ".lock") return false;
  return true;
}

std::optional<std::string> run_owner(const std::string& run_directory) {
  const int file = ::open((run_directory + "/.lock").c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::optional<std::string> owner;
  if (::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    std::array<char, 512> text{};
    const ssize_t size = ::pread(file, text.data(), text.size(), 0);
    const std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, size)));
    owner = line.empty() ? "a process" : line.substr(0, line.find('\n'));
  }
  ::close(file);
  return owner;
}

}  // namespace tessera
