#include "runtime/train/token_writer.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/train/token_data.h"
#include "runtime/train/token_format.h"

namespace tessera {
namespace {

constexpr std::int64_t kLargestU16Vocabulary = 65536;

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t vocab_size)
    : path_(path), vocab_size_(vocab_size), file_(path) {
  file_.append(std::string(kTokenHeaderBytes, '\0'));  // the header's place; finish() fills it
}

void TokenFileWriter::append(std::span<const std::uint32_t> tokens) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::int64_t total = num_tokens_ + static_cast<std::int64_t>(tokens.size());
  if (total > most) {
    throw DataError(fmt::format("{}: {} tokens, but the header counts at most {}", path_, total, most),
                    "write several files");
  }
  const bool narrow = vocab_size_ <= kLargestU16Vocabulary;
  for (const std::uint32_t id : tokens) {
    if (id >= static_cast<std::uint64_t>(vocab_size_)) {
      throw DataError(
          fmt::format("{}: token id {} at position {} is outside vocab_size {}", path_, id, num_tokens_, vocab_size_));
    }
    file_.append({reinterpret_cast<const char*>(&id),
                  narrow ? std::size_t{2} : std::size_t{4}});  // little-endian: the low half comes first
    ++num_tokens_;
  }
}

void TokenFileWriter::finish() {
  const bool narrow = vocab_size_ <= kLargestU16Vocabulary;
  std::array<std::int32_t, kTokenHeaderWords> header{};
  header[0] = narrow ? kTokenMagicU16 : kTokenMagicU32;
  header[1] = narrow ? kTokenVersionU16 : kTokenVersionU32;
  header[2] = static_cast<std::int32_t>(num_tokens_);
  file_.overwrite_start({reinterpret_cast<const char*>(header.data()), kTokenHeaderBytes});
  file_.commit();
}

void write_token_file(const std::string& path, std::span<const std::uint32_t> tokens, std::int64_t vocab_size) {
  TokenFileWriter writer(path, vocab_size);
  writer.append(tokens);
  writer.finish();
}

}  // namespace tessera
