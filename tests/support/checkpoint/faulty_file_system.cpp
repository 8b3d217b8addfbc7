#include "tests/support/checkpoint/faulty_file_system.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "runtime/base/error.h"

namespace tessera::test {

class FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(FaultyFileSystem& owner, std::unique_ptr<WritableFile> real, std::string path)
      : owner_(owner), real_(std::move(real)), path_(std::move(path)) {}

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (owner_.enter("write", path_)) {
      real_->write_at(offset, bytes.first(bytes.size() / 2));
      owner_.die();
    }
    real_->write_at(offset, bytes);
  }
  void sync() override {
    if (owner_.enter("sync", path_)) owner_.die();
    real_->sync();
  }
  void close() override {
    if (owner_.enter("close", path_)) owner_.die();
    real_->close();
  }

 private:
  FaultyFileSystem& owner_;
  std::unique_ptr<WritableFile> real_;
  std::string path_;
};

class CountingReadableFile final : public ReadableFile {
 public:
  CountingReadableFile(FaultyFileSystem& owner, std::unique_ptr<ReadableFile> real)
      : owner_(owner), real_(std::move(real)) {}
  std::uint64_t size() const override { return real_->size(); }
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    owner_.bytes_read_ += bytes.size();
    real_->read_at(offset, bytes);
  }

 private:
  FaultyFileSystem& owner_;
  std::unique_ptr<ReadableFile> real_;
};

void FaultyFileSystem::plan(std::int64_t call, FaultKind kind) {
  const std::lock_guard lock(mutex_);
  calls_.clear();
  fault_call_ = call;
  kind_ = kind;
}

void FaultyFileSystem::limit(std::uint64_t bytes, std::string only) {
  const std::lock_guard lock(mutex_);
  bytes_left_ = bytes;
  only_ = std::move(only);
}

std::vector<std::string> FaultyFileSystem::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

bool FaultyFileSystem::enter(const std::string& what, const std::string& path) {
  check_alive();
  const std::lock_guard lock(mutex_);
  calls_.push_back(fmt::format("{} {}", what, std::filesystem::path(path).filename().string()));
  if (static_cast<std::int64_t>(calls_.size()) != fault_call_) return false;
  if (kind_ == FaultKind::kFail) throw CheckpointError(fmt::format("{}: cannot {}: injected", path, what));
  if (kind_ == FaultKind::kKill) die();
  return true;
}

void FaultyFileSystem::die() {
  killed_ = true;
  if (kills_for_real_) ::kill(::getpid(), SIGKILL);
  throw Killed();
}

std::unique_ptr<WritableFile> FaultyFileSystem::create(const std::string& path, std::uint64_t bytes) {
  if (enter("create", path)) {
    real_->create(path, 0);
    die();
  }
  {
    const std::lock_guard lock(mutex_);
    if (path.find(only_) != std::string::npos) {
      if (bytes > bytes_left_) throw_disk_full(path, bytes, bytes_left_);
      bytes_left_ -= bytes;
    }
  }
  return std::make_unique<FaultyWritableFile>(*this, real_->create(path, bytes), path);
}

std::unique_ptr<ReadableFile> FaultyFileSystem::open(const std::string& path) {
  check_alive();
  return std::make_unique<CountingReadableFile>(*this, real_->open(path));
}

void FaultyFileSystem::make_directory(const std::string& path) {
  const bool torn = enter("mkdir", path);
  real_->make_directory(path);
  if (torn) die();
}

void FaultyFileSystem::rename(const std::string& from, const std::string& to) {
  const bool torn = enter("rename", from);
  real_->rename(from, to);
  if (torn) die();
}

void FaultyFileSystem::sync_directory(const std::string& path) {
  if (enter("sync", path)) die();
  real_->sync_directory(path);
}

void FaultyFileSystem::remove(const std::string& path) {
  if (enter("remove", path)) {
    // Half of a folder is gone.
    const auto entries = real_->list(path);
    for (std::size_t i = 0; i < (entries.size() + 1) / 2; ++i)
      real_->remove(fmt::format("{}/{}", path, entries[i].name));
    die();
  }
  real_->remove(path);
}

std::vector<DirectoryEntry> FaultyFileSystem::list(const std::string& path) {
  check_alive();
  return real_->list(path);
}

bool FaultyFileSystem::exists(const std::string& path) {
  check_alive();
  return real_->exists(path);
}

std::uint64_t FaultyFileSystem::free_bytes(const std::string& path) {
  check_alive();
  const std::lock_guard lock(mutex_);
  return only_.empty() ? std::min(bytes_left_, real_->free_bytes(path)) : real_->free_bytes(path);
}

}  // namespace tessera::test
