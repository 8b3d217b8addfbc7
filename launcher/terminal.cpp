#include "launcher/terminal.h"

#include <unistd.h>

#include <cstdio>

namespace tessera {

void write_to_terminal(const std::string& lines) {
  std::fflush(stdout);
  for (std::size_t done = 0; done < lines.size();) {
    const ssize_t written = ::write(STDERR_FILENO, lines.data() + done, lines.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace tessera
