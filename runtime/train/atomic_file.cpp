#include "runtime/train/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

AtomicFile::AtomicFile(std::string path, FileOf owner)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp.{}", path_, ::getpid())), owner_(owner) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(std::string_view what) const {
  const std::string message = fmt::format("{}: cannot {}: {}", path_, what, std::strerror(errno));
  if (owner_ == FileOf::kRun) throw DeviceError(message);
  throw DataError(message);
}

void AtomicFile::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(fmt::format("write {} bytes", bytes.size()));
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::append(std::string_view bytes) {
  buffer_.append(bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  write_all(buffer_);
  buffer_.clear();
}

void AtomicFile::overwrite_start(std::string_view bytes) {
  flush();
  if (::lseek(descriptor_, 0, SEEK_SET) != 0) fail("seek");
  write_all(bytes);
  if (::lseek(descriptor_, 0, SEEK_END) < 0) fail("seek");
}

void AtomicFile::commit() {
  flush();
  if (::fsync(descriptor_) != 0) fail("sync");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    errno = error;
    fail("close and rename");
  }
  // The name is durable once its directory is.
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

}  // namespace tessera
