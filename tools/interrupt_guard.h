// Cleaning up where a signal ends the program.
#pragma once

#include <csignal>
#include <functional>
#include <thread>

namespace tessera {

// While it lives, SIGINT, SIGTERM and SIGHUP (those that are not ignored) first run `clean`, on a thread of its own, and then end the process as
// they would have. Work need not ask for signals: it may be inside a library for minutes. `clean` runs beside that work, once; whoever destroys the
// guard meanwhile waits for the end. Threads that are started before the guard must not exist: they would still take the signals.
class InterruptGuard {
 public:
  explicit InterruptGuard(std::function<void()> clean);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  void wait(const std::function<void()>& clean) const;

  sigset_t signals_{}, before_{};
  int signal_queue_ = -1, end_ = -1;
  std::thread thread_;
};

}  // namespace tessera
