// A file system that goes wrong at one call: it fails there, or the process is as good as dead from there on. Counts calls and bytes besides.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera::test {

enum class FaultKind : std::uint8_t {
  kFail,     // the call does nothing and is an error; later ones work
  kKill,     // the process ends before the call
  kTornKill  // … in the middle of it: half of a write is there
};

// What the calls of a dead process throw: no error of ours, so that nothing takes it for one.
struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

class FaultyFileSystem final : public FileSystem {
 public:
  FaultyFileSystem() : real_(make_posix_file_system()) {}

  // Call number `call` (1 …, of those that change something) from now on goes wrong.
  void plan(std::int64_t call, FaultKind kind);
  // The disk has so many bytes left; `only` restricts that to paths that contain it.
  void limit(std::uint64_t bytes, std::string only = "");
  // From here on it is the process itself that dies, by SIGKILL.
  void kill_for_real() { kills_for_real_ = true; }
  bool killed() const { return killed_; }
  void check_alive() const {
    if (killed_) throw Killed();
  }
  // Since plan() or the beginning: "create shard-…", "write …", "sync …", in order.
  std::vector<std::string> calls() const;
  std::uint64_t bytes_read() const { return bytes_read_; }

  std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) override;
  void make_directory(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_directory(const std::string& path) override;
  void remove(const std::string& path) override;
  std::vector<DirectoryEntry> list(const std::string& path) override;
  bool exists(const std::string& path) override;
  std::uint64_t free_bytes(const std::string& path) override;

 private:
  friend class FaultyWritableFile;
  friend class CountingReadableFile;
  // Ends the process, or makes it as good as dead.
  [[noreturn]] void die();
  // Counts a call; true where it is to be torn.
  bool enter(const std::string& what, const std::string& path);

  std::unique_ptr<FileSystem> real_;
  mutable std::mutex mutex_;
  std::vector<std::string> calls_;
  std::int64_t fault_call_ = 0;
  FaultKind kind_ = FaultKind::kFail;
  std::uint64_t bytes_left_ = std::numeric_limits<std::uint64_t>::max();
  std::string only_;
  std::atomic<bool> killed_ = false;
  bool kills_for_real_ = false;
  std::atomic<std::uint64_t> bytes_read_ = 0;
};

}  // namespace tessera::test
