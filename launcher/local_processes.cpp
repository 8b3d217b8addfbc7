#include "launcher/local_processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <thread>

namespace tessera {

namespace fs = std::filesystem;

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
  for (const std::string& word : words) {
    std::error_code ignored;
    if (const fs::path path = fs::canonical(word, ignored); !path.empty() && fs::is_regular_file(path, ignored))
      programs_.push_back(path.string());
  }
}

std::vector<pid_t> LocalRanks::pids() const {
  std::vector<pid_t> ranks;
  for (const pid_t child : children_of(mpirun_)) {
    std::error_code gone;
    const fs::path program = fs::read_symlink(fmt::format("/proc/{}/exe", child), gone);
    if (!gone && std::ranges::find(programs_, program.string()) != programs_.end()) ranks.push_back(child);
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

int end_orphans(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::set<pid_t> ended;
  for (;;) {
    const pid_t collected = ::waitpid(-1, nullptr, WNOHANG);
    if (collected < 0 && errno == ECHILD) break;
    if (collected > 0) continue;
    for (const pid_t child : children_of(::getpid())) {
      ::kill(child, SIGKILL);
      ended.insert(child);
    }
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return static_cast<int>(ended.size());
}

}  // namespace tessera
