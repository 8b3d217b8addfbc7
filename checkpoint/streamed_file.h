// A file written from its first byte to its last, in pieces of any size: nothing of the size of the file is ever in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera {

class StreamedFile {
 public:
  // A new file that will have `bytes` bytes.
  StreamedFile(FileSystem& files, const std::string& path, std::uint64_t bytes);

  void append(std::span<const std::byte> bytes);
  // Durable when it returns. InternalError where another number of bytes was appended than announced.
  void finish();
  // Of each MiB, once finished.
  const std::vector<std::uint64_t>& block_hashes() const { return block_hashes_; }

 private:
  void flush();

  std::unique_ptr<WritableFile> file_;
  std::uint64_t bytes_, written_ = 0;
  std::vector<std::byte> buffer_;  // whole blocks, but for the end of the file
  std::size_t filled_ = 0;
  std::vector<std::uint64_t> block_hashes_;
};

}  // namespace tessera
