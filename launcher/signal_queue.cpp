#include "launcher/signal_queue.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "launcher/stop_signal.h"

namespace tessera {

SignalQueue::SignalQueue() {
  sigemptyset(&set_);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&set_, signal);
  // Blocked, it would be queued although it is ignored.
  if (!is_ignored(SIGHUP)) sigaddset(&set_, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &set_, &before_);
  descriptor_ = ::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
}

SignalQueue::~SignalQueue() {
  ::close(descriptor_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int SignalQueue::next(std::chrono::milliseconds timeout) const {
  pollfd wait{descriptor_, POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(timeout.count())) <= 0) return 0;
  signalfd_siginfo info{};
  return ::read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace tessera
