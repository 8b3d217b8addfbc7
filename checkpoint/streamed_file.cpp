#include "checkpoint/streamed_file.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/block_hash.h"
#include "runtime/base/error.h"

namespace tessera {

StreamedFile::StreamedFile(FileSystem& files, const std::string& path, std::uint64_t bytes)
    : file_(files.create(path, bytes)), bytes_(bytes), buffer_(4 * kBlockBytes) {}

void StreamedFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), buffer_.size() - filled_);
    std::memcpy(buffer_.data() + filled_, bytes.data(), count);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ == buffer_.size()) flush();
  }
}

void StreamedFile::flush() {
  const auto part = std::span<const std::byte>(buffer_).first(filled_);
  if (part.empty()) return;
  append_block_hashes(part, block_hashes_);
  file_->write_at(written_, part);
  written_ += part.size();
  filled_ = 0;
}

void StreamedFile::finish() {
  flush();
  require(written_ == bytes_, "a streamed file gets the bytes that were announced");
  file_->sync();
  file_->close();
}

}  // namespace tessera
