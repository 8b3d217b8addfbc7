// `tessera data show`: what a token file holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct TokenFileSummary {
  std::string path, format;
  std::int64_t num_bytes = 0, num_tokens = 0;
  std::uint32_t largest_id = 0;      // 0 for an empty file
  std::int64_t num_distinct = 0;     // different ids
  std::vector<std::uint32_t> first;  // the first tokens
  std::string tokenizer;             // that decoded them; "" where none is known
  std::string text;                  // the first tokens as text
};

// Reads the whole file. tokenizer: see load_tokenizer; "" takes tokenizer.model or tokenizer.json beside the file, or bytes where
// dataset.json beside it says so. DataError where the file is no token file, or where an id of the shown tokens is
// outside the tokenizer's vocabulary.
TokenFileSummary summarize_token_file(const std::string& path, const std::string& tokenizer, std::int64_t head);

// For people: unprintable characters of the text are escaped, so that a file cannot drive the terminal.
std::string to_text(const TokenFileSummary& summary);
std::string to_json(const TokenFileSummary& summary);

}  // namespace tessera
