#include "runtime/train/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace tessera {
namespace {

// The one line the owner wrote; "another run" where it has not come to that yet.
std::string owner_of(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  if (size <= 0) return "another run";
  std::string line(text.data(), static_cast<std::size_t>(size));
  return line.substr(0, line.find('\n'));
}

bool is_the_file_at(const std::string& path, int descriptor) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

RunLock::RunLock(const std::string& directory, const std::string& host) : path_(directory + "/.lock") {
  take(directory);
  const std::string text =
      fmt::format("process {} on {}, since {:%Y-%m-%dT%H:%M:%SZ}\n", ::getpid(), host, fmt::gmtime(std::time(nullptr)));
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    ::close(descriptor_);
    throw DeviceError(fmt::format("{}: {}", path_, std::strerror(error)));
  }
}

void RunLock::take(const std::string& directory) {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw DeviceError(fmt::format("{}: {}", path_, std::strerror(errno)));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
      // An owner that ends removes its file: a lock on what has no name any more keeps nobody out.
      if (is_the_file_at(path_, descriptor_)) return;
      ::close(descriptor_);
      continue;
    }
    const int error = errno;
    if (error == EWOULDBLOCK) {
      const std::string owner = owner_of(descriptor_);
      ::close(descriptor_);
      throw ConfigError(fmt::format("run directory {}: in use by {}", directory, owner),
                        "wait for it to end, or choose another --run-dir");
    }
    if (error == EINTR) {
      ::close(descriptor_);
      continue;
    }
    log::warn(fmt::format("run directory {}: its file system has no locks ({}): nothing keeps a second run out of it",
                          directory, std::strerror(error)));
    return;
  }
}

RunLock::~RunLock() {
  ::unlink(path_.c_str());  // before the lock goes: later, the name could be the next owner's
  ::close(descriptor_);
}

}  // namespace tessera
