#include "launcher/signal_queue.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/stop_signal.h"
#include "runtime/base/error.h"

namespace tessera {

SignalQueue::SignalQueue() {
  sigemptyset(&set_);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPIPE}) sigaddset(&set_, signal);
  // Blocked, it would be queued although it is ignored.
  if (!is_ignored(SIGHUP)) sigaddset(&set_, SIGHUP);
  descriptor_ = ::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) throw DeviceError(fmt::format("launch: no signalfd: {}", std::strerror(errno)));
  // Of a process that inherited it ignored the kernel collects the children itself, and their ends are not told.
  ::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_BLOCK, &set_, &before_);
}

SignalQueue::~SignalQueue() {
  // What came too late to act upon must not end a process that is about to return its code.
  while (next(std::chrono::milliseconds(0)) != 0) {
  }
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
