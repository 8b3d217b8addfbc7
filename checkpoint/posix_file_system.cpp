#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "checkpoint/file_system.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, std::string_view action, int error) {
  throw CheckpointError(fmt::format("{}: cannot {}: {}", path, action, std::strerror(error)));
}

std::uint64_t free_bytes_of(const std::string& path) {
  struct statvfs stats {};
  if (::statvfs(path.c_str(), &stats) != 0) fail(path, "ask for free space", errno);
  return static_cast<std::uint64_t>(stats.f_bavail) * stats.f_frsize;
}

// Quotas are full disks to whoever writes.
[[noreturn]] void fail_to_write(const std::string& path, std::string_view action, int error, std::uint64_t file_bytes) {
  if (error == ENOSPC || error == EDQUOT) throw_disk_full(path, file_bytes, free_bytes_of(parent_directory(path)));
  fail(path, action, error);
}

// Repeats a system call that a signal interrupted.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, std::uint64_t bytes)
      : path_(std::move(path)), bytes_(bytes), descriptor_(uninterrupted([&] {
          return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        })) {
    if (descriptor_.get() < 0) fail_to_write(path_, "create", errno, bytes_);
    claim_space();
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::uint64_t begin = offset;
    while (!bytes.empty()) {
      const ssize_t written = uninterrupted(
          [&] { return ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
      if (written <= 0) fail_to_write(path_, "write", written < 0 ? errno : EIO, bytes_);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
    // Starts the disk on what is there, and does not wait; only a hint, so its failure is none.
    ::sync_file_range(descriptor_.get(), static_cast<off_t>(begin), static_cast<off_t>(offset - begin),
                      SYNC_FILE_RANGE_WRITE);
  }

  void sync() override {
    // Never repeated after a failure: the kernel forgets the pages it could not write.
    if (::fsync(descriptor_.get()) != 0) fail_to_write(path_, "sync", errno, bytes_);
  }

  void close() override {
    // Never repeated either: after EINTR the descriptor is gone on Linux.
    if (::close(descriptor_.release()) != 0 && errno != EINTR) fail_to_write(path_, "close", errno, bytes_);
  }

 private:
  void claim_space() {
    if (bytes_ == 0) return;
    // Not posix_fallocate, which writes zeros where the file system cannot claim.
    const int result = uninterrupted([&] { return ::fallocate(descriptor_.get(), 0, 0, static_cast<off_t>(bytes_)); });
    if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail_to_write(path_, "claim space", errno, bytes_);
  }

  std::string path_;
  std::uint64_t bytes_;
  Descriptor descriptor_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  explicit PosixReadableFile(std::string path)
      : path_(std::move(path)),
        // Not blocking: a pipe without a writer would be waited for, and is refused below.
        descriptor_(uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); })) {
    if (descriptor_.get() < 0) fail(path_, "open", errno);
    struct stat stats {};
    if (::fstat(descriptor_.get(), &stats) != 0) fail(path_, "ask for its size", errno);
    if (!S_ISREG(stats.st_mode)) throw CheckpointError(fmt::format("{}: is no regular file", path_));
    size_ = static_cast<std::uint64_t>(stats.st_size);
  }

  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t got = uninterrupted(
          [&] { return ::pread(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
      if (got < 0) fail(path_, "read", errno);
      if (got == 0)
        throw CheckpointError(fmt::format("{}: ends at byte {}, {} more expected", path_, offset, bytes.size()));
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) override {
    return std::make_unique<PosixWritableFile>(path, bytes);
  }

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    return std::make_unique<PosixReadableFile>(path);
  }

  void make_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) != 0) fail_to_write(path, "create the folder", errno, 0);
  }

  void rename(const std::string& from, const std::string& to) override {
    // RENAME_NOREPLACE closes the gap between looking and renaming where the file system has it.
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
    int error = errno;
    if (error == EINVAL || error == ENOSYS) {
      if (exists(to)) fail(to, fmt::format("rename {} to it", from), EEXIST);
      if (::rename(from.c_str(), to.c_str()) == 0) return;
      error = errno;
    }
    fail(to, fmt::format("rename {} to it", from), error);
  }

  void sync_directory(const std::string& path) override {
    const Descriptor folder(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (folder.get() < 0) fail(path, "open the folder", errno);
    // EINVAL: a file system that has nothing to sync in a folder.
    if (::fsync(folder.get()) != 0 && errno != EINVAL) fail(path, "sync the folder", errno);
  }

  void remove(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail(path, "remove", error.value());
  }

  std::vector<DirectoryEntry> list(const std::string& path) override {
    std::error_code error;
    std::vector<DirectoryEntry> entries;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      std::error_code vanished;
      entries.push_back({entry->path().filename().string(), entry->is_directory(vanished)});
    }
    if (error) fail(path, "list", error.value());
    std::ranges::sort(entries, {}, &DirectoryEntry::name);
    return entries;
  }

  bool exists(const std::string& path) override {
    struct stat stats {};
    if (::lstat(path.c_str(), &stats) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) fail(path, "look up", errno);
    return false;
  }

  std::uint64_t free_bytes(const std::string& path) override { return free_bytes_of(path); }
};

}  // namespace

std::unique_ptr<FileSystem> make_posix_file_system() {
  return std::make_unique<PosixFileSystem>();
}

}  // namespace tessera
