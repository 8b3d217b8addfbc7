// Writing token files piece by piece, in constant memory. Nothing is seen under the final name before it is complete:
// bytes go to a temporary name beside it, finish() writes the header, syncs and renames; a writer that is destroyed
// unfinished removes its temporary file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera {

class TokenFileWriter {
 public:
  // u16 (llm.c version 1) where vocab_size <= 65536, else u32 (version 7). DataError where the file cannot be created.
  TokenFileWriter(std::string path, std::int64_t vocab_size);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  // DataError for an id outside [0, vocab_size), for more than 2^31 - 1 tokens (the header's limit), and for a full
  // disk.
  void append(std::span<const std::uint32_t> tokens);
  void finish();
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  void flush();

  std::string path_, temporary_;
  std::int64_t vocab_size_;
  int descriptor_ = -1;
  std::int64_t num_tokens_ = 0;
  std::string buffer_;
};

}  // namespace tessera
