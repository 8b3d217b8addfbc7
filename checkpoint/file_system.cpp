#include "checkpoint/file_system.h"

#include <fmt/format.h>

#include <filesystem>

#include "runtime/base/error.h"

namespace tessera {

void throw_disk_full(const std::string& path, std::uint64_t needed_bytes, std::uint64_t free_bytes) {
  throw CheckpointError(fmt::format("{}: disk full: {} bytes needed, {} free", path, needed_bytes, free_bytes),
                        "free some space, or lower checkpoint.keep_latest");
}

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string read_small_file(FileSystem& files, const std::string& path, std::uint64_t max_bytes) {
  const auto file = files.open(path);
  if (file->size() > max_bytes)
    throw CheckpointError(fmt::format("{}: {} bytes, expected at most {}", path, file->size(), max_bytes));
  std::string text(file->size(), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_small_file(FileSystem& files, const std::string& path, std::string_view text) {
  const auto file = files.create(path, text.size());
  file->write_at(0, std::as_bytes(std::span(text)));
  file->sync();
  file->close();
}

}  // namespace tessera
