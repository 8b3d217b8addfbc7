// The signals of a process that supervises others, one after another instead of in a handler.
#pragma once

#include <signal.h>

#include <chrono>

namespace tessera {

// SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPIPE, and SIGHUP where it was not ignored: delivered through a descriptor while this lives. A launcher whose
// words nobody reads any longer, as after a Ctrl-C that ended `| tee` as well, still has a job to end in order.
class SignalQueue {
 public:
  // DeviceError where there is no descriptor left.
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // The mask as it was: for processes that are started.
  const sigset_t& before() const { return before_; }
  // The next signal, or 0 after the timeout.
  int next(std::chrono::milliseconds timeout) const;

 private:
  sigset_t set_{}, before_{};
  int descriptor_ = -1;
};

// Whether it is one of the four that ask to stop.
inline bool asks_to_stop(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGUSR1;
}

}  // namespace tessera
