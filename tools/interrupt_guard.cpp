#include "tools/interrupt_guard.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "launcher/stop_signal.h"

namespace tessera {

InterruptGuard::InterruptGuard(std::function<void()> clean) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&signals_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  signal_queue_ = ::signalfd(-1, &signals_, SFD_CLOEXEC);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this, clean = std::move(clean)] { wait(clean); });
}

InterruptGuard::~InterruptGuard() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(end_, &one, sizeof one);
  thread_.join();
  ::close(signal_queue_);
  ::close(end_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void InterruptGuard::wait(const std::function<void()>& clean) const {
  std::array<pollfd, 2> queues{pollfd{signal_queue_, POLLIN, 0}, pollfd{end_, POLLIN, 0}};
  while (::poll(queues.data(), queues.size(), -1) < 0) {
  }
  signalfd_siginfo info{};
  if ((queues[0].revents & POLLIN) == 0 || ::read(signal_queue_, &info, sizeof info) != sizeof info) return;
  clean();
  const auto signal = static_cast<int>(info.ssi_signo);
  ::signal(signal, SIG_DFL);
  sigset_t mine;
  sigemptyset(&mine);
  sigaddset(&mine, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &mine, nullptr);
  ::raise(signal);
}

}  // namespace tessera
