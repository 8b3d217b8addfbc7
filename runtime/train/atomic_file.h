// A file that appears under its name only when it is complete: bytes go to a temporary name beside it; commit() syncs,
// closes and renames. One that is destroyed uncommitted removes its temporary file. Every step is checked: a full disk
// is an error also when only close says so, a DataError for data and a DeviceError for a file of a run.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

enum class FileOf { kData, kRun };

class AtomicFile {
 public:
  explicit AtomicFile(std::string path, FileOf owner = FileOf::kData);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::string_view bytes);
  // Replaces the first bytes; they must have been appended before.
  void overwrite_start(std::string_view bytes);
  void commit();

 private:
  void flush();
  void write_all(std::string_view bytes);
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_, temporary_;
  FileOf owner_;
  int descriptor_ = -1;
  std::string buffer_;
};

}  // namespace tessera
