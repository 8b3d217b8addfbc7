#include "launcher/attempt.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "launcher/local_processes.h"
#include "launcher/stop_signal.h"
#include "launcher/terminal.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTurn{200};
// The request is repeated: ranks of other hosts may not have been there yet.
constexpr seconds kRepeat{1};
// A signal that comes before a process has a handler for it ends that process. The request waits so long at most for ranks of this host, and so
// long for those that cannot be seen.
constexpr seconds kStartHere{30}, kStartElsewhere{3};
// From SIGTERM, which lets mpirun end its ranks on every host, to SIGKILL.
constexpr seconds kPatience{5};
// How long mpirun may outlive its ranks of this host. They leave MPI together; but after an abort it waits for daemons of hosts
// that nobody reaches any longer.
constexpr seconds kAfterTheRanks{15};
constexpr milliseconds kOrphans{5000};

pid_t start(const LaunchLine& line, const sigset_t& mask) {
  std::vector<char*> words;
  for (const std::string& argument : line.arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t launcher = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw DeviceError(fmt::format("launch: cannot start a process: {}", std::strerror(errno)));
  if (child != 0) return child;
  // A process group of its own: the terminal's Ctrl-C is for us alone, who make a polite request of it.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nor may the job outlive a launcher that was killed
  if (::getppid() != launcher) ::_exit(kCommandNotRun);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
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

// What --quiet keeps mpirun from saying. killed: a signal ended mpirun itself.
void explain(int code, bool killed, const LaunchLine& line, AttemptEnd& end) {
  constexpr std::array kDeaths = {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGTERM, SIGPIPE};
  const int signal = code - 128;
  if (code == kCommandNotRun) {
    end.ran = false;
    end.why = "mpirun could not be run";
    end.hint = "install openmpi-bin";
  } else if (killed) {
    end.why = fmt::format("mpirun was ended by signal {} ({})", signal, ::strsignal(signal));
  } else if (std::find(kDeaths.begin(), kDeaths.end(), signal) != kDeaths.end()) {
    end.why = fmt::format("a rank was lost to signal {} ({})", signal, ::strsignal(signal));
  } else {
    end.why = fmt::format("mpirun returned {}: it failed, or lost a rank", code);
    end.hint = "without --quiet it says why: " + line.str();
  }
}

void say(const std::string& line) {
  write_to_terminal(line + "\n");
}

class Attempt {
 public:
  Attempt(const LaunchLine& line, const SignalQueue& signals)
      : line_(line), mpirun_(start(line, signals.before())), ranks_(mpirun_, line.arguments) {}

  // Once mpirun has ended.
  std::optional<AttemptEnd> end() const {
    int status = 0;
    if (::waitpid(mpirun_, &status, WNOHANG) != mpirun_) return std::nullopt;
    const int code = code_of(status);
    AttemptEnd end{.stop_requested = stopping_};
    if (left_) {
      end.code = static_cast<int>(ExitCode::kCollective);
      end.why = "mpirun did not end although its ranks of this host did";
      end.said = true;
    } else if (killing_ && code != static_cast<int>(ExitCode::kDone) && code != static_cast<int>(ExitCode::kStopped)) {
      end.code = static_cast<int>(ExitCode::kStoppedUnsaved);
    } else {
      end.code = job_exit_code(code, stopping_);
      if (!stopping_ && !is_ours(code)) explain(code, WIFSIGNALED(status), line_, end);
    }
    return end;
  }

  void hear(int signal) {
    const Clock::time_point now = Clock::now();
    if (!asks_to_stop(signal)) return;
    if (!stopping_) {
      say(fmt::format("launch: {}: asking the ranks to stop; again to kill them", signal_name(signal)));
      stopping_ = true;
      request_at_ = now;
    } else if ((signal == SIGINT || signal == SIGTERM) && !killing_) {
      killing_ = true;
      kill_at_ = now + kPatience;
      ::kill(mpirun_, SIGTERM);
    } else if (signal == SIGINT) {
      kill_at_ = now;
    }
  }

  void turn() {
    const Clock::time_point now = Clock::now();
    if (stopping_ && !killing_ && now >= request_at_ && can_hear()) {
      ::kill(mpirun_, SIGUSR1);
      request_at_ = now + kRepeat;
    }
    if (!killing_ && !left_ && now >= look_at_) look(now);
    if (killing_ && now >= kill_at_) {
      ::kill(-mpirun_, SIGKILL);
      kill_at_ = now + kPatience;
    }
  }

 private:
  bool can_hear() const {
    if (!handles(mpirun_, SIGUSR1)) return false;
    const std::vector<pid_t> here = ranks_.pids();
    const bool all_hear = std::ranges::all_of(here, [](pid_t rank) { return handles(rank, SIGUSR1); });
    const Clock::duration waited = Clock::now() - started_;
    if (waited > kStartHere) return true;
    return all_hear &&
           (line_.one_host ? std::ssize(here) >= std::ptrdiff_t{line_.num_ranks} : waited > kStartElsewhere);
  }

  void look(Clock::time_point now) {
    look_at_ = now + seconds(1);
    if (!ranks_.pids().empty()) {
      ranks_at_ = now;
    } else if (ranks_at_ && now - *ranks_at_ > kAfterTheRanks) {
      say("launch: mpirun does not end although its ranks of this host did, and is killed; hint: is a host cut off?");
      left_ = true;
      ::kill(-mpirun_, SIGKILL);  // it is busy with an abort already: asked once more, it crashes
    }
  }

  const LaunchLine& line_;
  Clock::time_point started_ = Clock::now();
  pid_t mpirun_;
  LocalRanks ranks_;
  bool stopping_ = false, killing_ = false, left_ = false;
  Clock::time_point request_at_, kill_at_, look_at_ = Clock::now();
  std::optional<Clock::time_point> ranks_at_;  // when ranks of this host were last seen
};

}  // namespace

int job_exit_code(int mpirun_code, bool stop_was_requested) {
  constexpr int kSignalled = 128;
  if (is_ours(mpirun_code)) return mpirun_code;
  if (stop_was_requested && mpirun_code > kSignalled) return static_cast<int>(ExitCode::kStoppedUnsaved);
  return static_cast<int>(ExitCode::kCollective);
}

AttemptEnd run_attempt(const LaunchLine& line, const SignalQueue& signals, const std::function<void()>& each_turn) {
  const std::vector<pid_t> others = children_of(::getpid());
  adopt_orphans();
  Attempt attempt(line, signals);
  for (;;) {
    if (const auto end = attempt.end()) {
      // Ranks of an mpirun that was killed know nothing of it yet.
      end_orphans(others, kOrphans);
      each_turn();
      return *end;
    }
    attempt.hear(signals.next(kTurn));
    attempt.turn();
    each_turn();
  }
}

}  // namespace tessera
