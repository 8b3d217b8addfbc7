#include "runtime/train/token_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/train/token_data.h"
#include "runtime/train/token_format.h"

namespace tessera {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::int64_t kLargestU16Vocabulary = 65536;

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw DataError(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

void write_all(int descriptor, const char* data, std::size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(path, fmt::format("write {} bytes", size));
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

}  // namespace

TokenFileWriter::TokenFileWriter(std::string path, std::int64_t vocab_size)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp.{}", path_, ::getpid())), vocab_size_(vocab_size) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail(path_, "create");
  buffer_.assign(kTokenHeaderBytes, '\0');  // the header's place; finish() fills it
}

TokenFileWriter::~TokenFileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void TokenFileWriter::append(std::span<const std::uint32_t> tokens) {
  const bool narrow = vocab_size_ <= kLargestU16Vocabulary;
  if (num_tokens_ + static_cast<std::int64_t>(tokens.size()) > std::numeric_limits<std::int32_t>::max()) {
    throw DataError(
        fmt::format("{}: {} tokens, but the header counts at most {}", path_,
                    num_tokens_ + static_cast<std::int64_t>(tokens.size()), std::numeric_limits<std::int32_t>::max()),
        "write several files");
  }
  for (const std::uint32_t id : tokens) {
    if (id >= static_cast<std::uint64_t>(vocab_size_)) {
      throw DataError(
          fmt::format("{}: token id {} at position {} is outside vocab_size {}", path_, id, num_tokens_, vocab_size_));
    }
    buffer_.append(reinterpret_cast<const char*>(&id), narrow ? 2 : 4);  // little-endian: the low half comes first
    ++num_tokens_;
    if (buffer_.size() >= kBufferBytes) flush();
  }
}

void TokenFileWriter::flush() {
  write_all(descriptor_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

void TokenFileWriter::finish() {
  flush();
  const bool narrow = vocab_size_ <= kLargestU16Vocabulary;
  std::array<std::int32_t, kTokenHeaderWords> header{};
  header[0] = narrow ? kTokenMagicU16 : kTokenMagicU32;
  header[1] = narrow ? kTokenVersionU16 : kTokenVersionU32;
  header[2] = static_cast<std::int32_t>(num_tokens_);
  if (::lseek(descriptor_, 0, SEEK_SET) != 0) fail(path_, "seek");
  write_all(descriptor_, reinterpret_cast<const char*>(header.data()), kTokenHeaderBytes, path_);
  if (::fsync(descriptor_) != 0) fail(path_, "sync");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    errno = error;
    fail(path_, "close and rename");
  }
  // The name is durable once its directory is.
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

void write_token_file(const std::string& path, std::span<const std::uint32_t> tokens, std::int64_t vocab_size) {
  TokenFileWriter writer(path, vocab_size);
  writer.append(tokens);
  writer.finish();
}

}  // namespace tessera
