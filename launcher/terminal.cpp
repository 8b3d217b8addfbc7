#include "launcher/terminal.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace tessera {
namespace {

// For a reader that is slow; one that has stopped must not stop a launcher.
constexpr int kPatienceMs = 1000;

bool can_write_again() {
  if (errno == EINTR) return true;
  pollfd wait{STDERR_FILENO, POLLOUT, 0};
  return (errno == EAGAIN || errno == EWOULDBLOCK) && ::poll(&wait, 1, kPatienceMs) == 1;
}

}  // namespace

void write_to_terminal(const std::string& lines) {
  std::fflush(stdout);
  for (std::size_t done = 0; done < lines.size();) {
    const ssize_t written = ::write(STDERR_FILENO, lines.data() + done, lines.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written == 0 || !can_write_again()) {
      return;
    }
  }
}

}  // namespace tessera
