// Writing token files piece by piece, in constant memory. Nothing is seen under the final name before finish(): see
// AtomicFile.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/train/atomic_file.h"

namespace tessera {

class TokenFileWriter {
 public:
  // u16 (llm.c version 1) where vocab_size <= 65536, else u32 (version 7). DataError where the file cannot be created.
  TokenFileWriter(const std::string& path, std::int64_t vocab_size);

  // DataError for an id outside [0, vocab_size), for more than 2^31 - 1 tokens (the header's limit), and for a full
  // disk.
  void append(std::span<const std::uint32_t> tokens);
  void finish();
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  std::string path_;
  std::int64_t vocab_size_;
  AtomicFile file_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace tessera
