// What a tokenizer.json of Hugging Face says, as plain data: byte-level BPE with the pre-tokenizers of GPT-2, Llama 3 and Qwen2. Whatever else such a
// file can ask for is refused by its place in the file, never approximated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/train/added_tokens.h"
#include "runtime/train/bpe.h"
#include "runtime/train/word_pattern.h"

namespace tessera {

struct TokenizerFile {
  std::vector<std::string> vocabulary;   // the model's tokens by id, in the byte alphabet (byte_alphabet.h)
  std::vector<BpeMerge> merges;          // first to last
  std::vector<AddedToken> added_tokens;  // some may be of the vocabulary; the others follow it
  bool ignore_merges = false;            // a word that is a token is that token
  bool normalize_nfc = false;            // before words are cut
  bool add_prefix_space = false;         // before each plain part that does not begin with one
  WordPattern pattern = WordPattern::kGpt2;
  std::vector<std::uint32_t> text_prefix;  // what the post-processor puts before a text

  // Ids are 0 … num_tokens() - 1.
  std::int64_t num_tokens() const;
};

// DataError naming `path`, the place in the file, what was found and what was expected.
TokenizerFile parse_tokenizer_file(std::string_view json, const std::string& path);
TokenizerFile read_tokenizer_file(const std::string& path);

}  // namespace tessera
