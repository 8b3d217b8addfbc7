#include "launcher/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "parallel/collective_log.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

// A handler has no other way to reach the program. Lock-free, hence safe to touch in it.
std::atomic<int> first_signal{0};
std::atomic<int> num_sigterm{0};
std::atomic<int> watcher{-1};
std::atomic<CollectiveLog*> log_to_mark{nullptr};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<CollectiveLog*>::is_always_lock_free);

void mark_log() {
  if (CollectiveLog* log = log_to_mark.load(); log != nullptr)
    log->mark_ended(static_cast<int>(ExitCode::kStoppedUnsaved));
}

extern "C" void note_signal(int signal) {
  if (signal == SIGTERM) {
    num_sigterm.fetch_add(1);
    // Whoever sends it after a request to stop is about to end this process, perhaps before the watcher does.
    if (first_signal.load() != 0) mark_log();
    if (const int descriptor = watcher.load(); descriptor >= 0) {
      const int error = errno;
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = ::write(descriptor, &one, sizeof one);
      errno = error;
      return;
    }
  }
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) return;
  if (signal == SIGINT || signal == SIGTERM) end_unsaved();
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) {
    if (signal != SIGHUP || !is_ignored(signal)) ::sigaction(signal, &action, nullptr);
  }
}

bool is_ignored(int signal) {
  struct sigaction current {};
  return ::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
}

bool stop_requested() {
  return first_signal.load() != 0;
}

int stop_signal() {
  return first_signal.load();
}

void watch_sigterm(int descriptor) {
  watcher.store(descriptor);
}

int num_sigterms() {
  return num_sigterm.load();
}

void stop_on_sigterm() {
  int none = 0;
  first_signal.compare_exchange_strong(none, SIGTERM);
}

void mark_on_unsaved_end(CollectiveLog* log) {
  log_to_mark.store(log);
}

void end_unsaved() {
  mark_log();
  ::_exit(static_cast<int>(ExitCode::kStoppedUnsaved));
}

const char* signal_name(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    case SIGUSR1: return "SIGUSR1";
    default: return "signal";
  }
}

}  // namespace tessera
