#include "launcher/local_processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

namespace tessera {

namespace fs = std::filesystem;

namespace {

// Device and inode of a regular file.
std::optional<std::pair<dev_t, ino_t>> file_at(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return std::pair(found.st_dev, found.st_ino);
}

}  // namespace

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code code;
  for (fs::directory_iterator task(fmt::format("/proc/{}/task", process), code), end; !code && task != end;
       task.increment(code)) {
    std::ifstream children(task->path() / "children");
    for (pid_t child = 0; children >> child;) found.push_back(child);
  }
  return found;
}

LocalRanks::LocalRanks(pid_t mpirun, const std::vector<std::string>& words) : mpirun_(mpirun) {
  for (const std::string& word : words)
    if (const auto file = file_at(word)) programs_.push_back(*file);
}

std::vector<pid_t> LocalRanks::pids() const {
  std::vector<pid_t> ranks;
  for (const pid_t child : children_of(mpirun_)) {
    const auto program = file_at(fmt::format("/proc/{}/exe", child));
    if (program && std::ranges::find(programs_, *program) != programs_.end()) ranks.push_back(child);
  }
  return ranks;
}

bool handles(pid_t process, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string key; status >> key;) {
    std::uint64_t mask = 0;
    if (key == "SigCgt:" && status >> std::hex >> mask) return ((mask >> (signal - 1)) & 1U) != 0;
    status.ignore(1 << 20, '\n');
  }
  return false;
}

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int end_orphans(const std::vector<pid_t>& others, std::chrono::milliseconds patience) {
  constexpr int kQuietLooks = 3;  // the kernel's list may leave out one while another ends
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::set<pid_t> ended;
  for (int quiet = 0; quiet < kQuietLooks;) {
    const pid_t collected = ::waitpid(-1, nullptr, WNOHANG);
    if (collected < 0 && errno == ECHILD) break;
    if (collected > 0) continue;
    ++quiet;
    for (const pid_t child : children_of(::getpid())) {
      if (std::ranges::find(others, child) != others.end()) continue;
      ::kill(child, SIGKILL);
      ended.insert(child);
      quiet = 0;
    }
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return static_cast<int>(ended.size());
}

}  // namespace tessera
