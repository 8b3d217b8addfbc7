#include "runtime/train/chaos_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

#include "checkpoint/folders.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

void flip_middle_bit(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out | std::ios::ate);
  const std::streamoff middle = file.tellg() / 2;
  file.seekg(middle);
  const int byte = file.get();
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 1));
  if (!file.flush()) throw CheckpointError(fmt::format("{}: chaos cannot flip a bit of it", path));
}

// A shard of the save of `step`.
class ChaosWritableFile final : public WritableFile {
 public:
  ChaosWritableFile(std::unique_ptr<WritableFile> real, Chaos& chaos, std::string path, std::uint64_t bytes,
                    std::int64_t step)
      : real_(std::move(real)), chaos_(chaos), path_(std::move(path)), bytes_(bytes), step_(step) {}

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const bool kill = chaos_.at_save("kill_in_save", step_);
    const bool full = !kill && chaos_.at_save("disk_full", step_);
    if (kill || full) real_->write_at(offset, bytes.first(bytes.size() / 2));
    if (kill) ::kill(::getpid(), SIGKILL);
    if (full) throw_disk_full(path_, bytes_, 0);
    real_->write_at(offset, bytes);
  }
  void sync() override { real_->sync(); }
  void close() override {
    real_->close();
    if (chaos_.at_save("flip_bit", step_)) flip_middle_bit(path_);
  }

 private:
  std::unique_ptr<WritableFile> real_;
  Chaos& chaos_;
  std::string path_;
  std::uint64_t bytes_;
  std::int64_t step_;
};

class ChaosFileSystem final : public FileSystem {
 public:
  ChaosFileSystem(FileSystem& real, Chaos& chaos) : real_(real), chaos_(chaos) {}

  std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) override {
    auto file = real_.create(path, bytes);
    const std::filesystem::path place(path);
    const auto step = step_of_unfinished(place.parent_path().filename().string());
    if (!step || !place.filename().string().starts_with("shard-")) return file;
    return std::make_unique<ChaosWritableFile>(std::move(file), chaos_, path, bytes, *step);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override { return real_.open(path); }
  void make_directory(const std::string& path) override { real_.make_directory(path); }
  void rename(const std::string& from, const std::string& to) override { real_.rename(from, to); }
  void sync_directory(const std::string& path) override { real_.sync_directory(path); }
  void remove(const std::string& path) override { real_.remove(path); }
  std::vector<DirectoryEntry> list(const std::string& path) override { return real_.list(path); }
  bool exists(const std::string& path) override { return real_.exists(path); }
  std::uint64_t free_bytes(const std::string& path) override { return real_.free_bytes(path); }

 private:
  FileSystem& real_;
  Chaos& chaos_;
};

}  // namespace

std::unique_ptr<FileSystem> make_chaos_file_system(FileSystem& real, Chaos& chaos) {
  return std::make_unique<ChaosFileSystem>(real, chaos);
}

}  // namespace tessera
