#include "launcher/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "launcher/stop_signal.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The request is repeated: one that comes before mpirun has started the ranks reaches nobody.
constexpr seconds kRepeat{1};
// From SIGTERM, which lets mpirun end its ranks on every host, to SIGKILL.
constexpr seconds kPatience{5};
// How long mpirun may outlive its ranks of this host. They leave MPI together; but after an abort it waits for daemons of hosts
// that nobody reaches any longer.
constexpr seconds kAfterTheRanks{15};
constexpr int kCommandNotRun = 127;

// Signals that are delivered through a descriptor while it lives.
class SignalQueue {
 public:
  SignalQueue() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&set_, signal);
    // Blocked, it would be queued although it is ignored.
    if (!is_ignored(SIGHUP)) sigaddset(&set_, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
    descriptor_ = ::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~SignalQueue() {
    ::close(descriptor_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  const sigset_t& before() const { return before_; }
  // The next signal, or 0 after the timeout.
  int next(milliseconds timeout) const {
    pollfd wait{descriptor_, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(timeout.count())) <= 0) return 0;
    signalfd_siginfo info{};
    return ::read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t set_{}, before_{};
  int descriptor_ = -1;
};

pid_t start(const LaunchLine& line, const sigset_t& mask) {
  std::vector<char*> words;
  for (const std::string& argument : line.arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  // A process group of its own: the terminal's Ctrl-C is for us alone, who make a polite request of it.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nor may the job outlive a launcher that was killed
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  for (const auto& [name, value] : line.environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::execvp(words[0], words.data());
  ::_exit(kCommandNotRun);
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Whether a rank of Tessera returned this, rather than mpirun on its own account (1, 128 + the signal of a lost rank, or an error number of
// its own, which may be above 128 too).
bool is_ours(int code) {
  constexpr std::array kCodes = {
      ExitCode::kDone,   ExitCode::kUsage,     ExitCode::kData,     ExitCode::kCollective, ExitCode::kCheckpoint,
      ExitCode::kDevice, ExitCode::kNonFinite, ExitCode::kInternal, ExitCode::kStopped,    ExitCode::kStoppedUnsaved};
  return std::any_of(kCodes.begin(), kCodes.end(), [code](ExitCode known) { return static_cast<int>(known) == code; });
}

// What --quiet keeps mpirun from saying.
std::string explain(int code, const LaunchLine& line) {
  constexpr std::array kDeaths = {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGTERM, SIGPIPE};
  if (code == kCommandNotRun) return "launch: mpirun could not be run; hint: install openmpi-bin";
  const int signal = code - 128;
  if (std::find(kDeaths.begin(), kDeaths.end(), signal) != kDeaths.end()) {
    return fmt::format("launch: a rank was lost to signal {} ({})", signal, ::strsignal(signal));
  }
  return fmt::format("launch: mpirun returned {}: it failed, or lost a rank; hint: without --quiet it says why: {}",
                     code, line.str());
}

// Processes of a program among the children of mpirun, which may have others: what it starts daemons with.
class Ranks {
 public:
  Ranks(pid_t mpirun, const LaunchLine& line) : mpirun_(mpirun) {
    for (const std::string& word : line.arguments) {
      std::error_code ignored;
      if (const fs::path path = fs::canonical(word, ignored); !path.empty()) programs_.push_back(path);
    }
  }

  // Where the kernel does not list children: none, which is never the end of anything.
  bool any() const {
    std::error_code code;
    for (fs::directory_iterator task(fmt::format("/proc/{}/task", mpirun_), code), end; !code && task != end;
         task.increment(code)) {
      std::ifstream children(task->path() / "children");
      for (pid_t child = 0; children >> child;) {
        std::error_code gone;
        const fs::path program = fs::read_symlink(fmt::format("/proc/{}/exe", child), gone);
        if (!gone && std::find(programs_.begin(), programs_.end(), program) != programs_.end()) return true;
      }
    }
    return false;
  }

 private:
  pid_t mpirun_;
  std::vector<fs::path> programs_;
};

void say(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

int job_exit_code(int mpirun_code, bool stop_was_requested) {
  constexpr int kSignalled = 128;
  if (is_ours(mpirun_code)) return mpirun_code;
  if (stop_was_requested && mpirun_code > kSignalled) return static_cast<int>(ExitCode::kStoppedUnsaved);
  return static_cast<int>(ExitCode::kCollective);
}

int run_job(const LaunchLine& line) {
  const SignalQueue signals;
  const pid_t mpirun = start(line, signals.before());
  if (mpirun < 0) throw DeviceError(fmt::format("launch: cannot start a process: {}", std::strerror(errno)));
  const Ranks ranks(mpirun, line);
  bool stopping = false, killing = false, left = false, had_ranks = false;
  Clock::time_point repeat_at, kill_at, look_at = Clock::now(), ranks_at;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(mpirun, &status, WNOHANG);
    if (ended == mpirun) {
      const int code = code_of(status);
      if (!stopping && !left && !is_ours(code)) say(explain(code, line));
      if (left) return static_cast<int>(ExitCode::kCollective);
      return killing ? static_cast<int>(ExitCode::kStoppedUnsaved) : job_exit_code(code, stopping);
    }
    const int signal = signals.next(milliseconds(200));
    const Clock::time_point now = Clock::now();
    if (signal != 0 && signal != SIGCHLD) {
      if (!stopping) {
        say(fmt::format("launch: {}: asking the ranks to stop; again to kill them", signal_name(signal)));
        stopping = true;
        repeat_at = now;
      } else if ((signal == SIGINT || signal == SIGTERM) && !killing) {
        killing = true;
        kill_at = now + kPatience;
        ::kill(mpirun, SIGTERM);
      } else if (signal == SIGINT && killing) {
        kill_at = now;
      }
    }
    if (stopping && !killing && now >= repeat_at) {
      ::kill(mpirun, SIGUSR1);
      repeat_at = now + kRepeat;
    }
    if (!killing && !left && now >= look_at) {
      look_at = now + seconds(1);
      if (ranks.any()) {
        had_ranks = true;
        ranks_at = now;
      } else if (had_ranks && now - ranks_at > kAfterTheRanks) {
        say("launch: mpirun does not end although its ranks of this host did, and is killed; hint: is a host cut off?");
        left = true;
        ::kill(-mpirun, SIGKILL);  // it is busy with an abort already: asked once more, it crashes
      }
    }
    if (killing && now >= kill_at) {
      ::kill(-mpirun, SIGKILL);
      kill_at = now + kPatience;
    }
  }
}

}  // namespace tessera
