// `tessera data prepare`: text to token files. Memory is bounded whatever the size of the text: a section of 64 KiB, a
// shard's write buffer, the counts of the vocabulary, and, where a tokenizer is trained, a small multiple of
// tokenizer_bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct PrepareOptions {
  std::vector<std::string> inputs;      // files or patterns
  std::string output;                   // a folder that does not exist, or is empty
  std::string tokenizer;                // bytes | PATH.model | PATH.json | train:bpe:VOCAB
  double validation_fraction = 0.05;    // of the text; used where validation is empty
  std::vector<std::string> validation;  // files or patterns
  std::optional<std::string>
      separator;           // text after each document; default: the tokenizer's end of text, for bytes a blank line
  std::string split_line;  // see TextReaderOptions
  std::string text_field = "text";
  std::int64_t shard_tokens = 100'000'000;
  std::int64_t tokenizer_bytes = 32 << 20;  // the tokenizer is trained on about this much of the text, taken evenly
  bool overwrite = false;                   // replaces a folder that data prepare made, and no other
};

// One side of the split. Entropies are of the tokens' own frequencies, -Σ p ln p in nats: what the best model that
// ignores context would lose on exactly these tokens. Separators are tokens like others; bytes are those of the text,
// without separators.
struct SplitSummary {
  std::vector<std::string> files;
  std::int64_t documents = 0;  // or parts of documents that the split cut
  std::int64_t bytes = 0, tokens = 0;
  double unigram_entropy_per_token = 0;

  double bytes_per_token() const { return tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0; }
  double unigram_entropy_per_byte() const {
    return bytes > 0 ? unigram_entropy_per_token * static_cast<double>(tokens) / static_cast<double>(bytes) : 0;
  }
};

struct PrepareSummary {
  std::string output, tokenizer;  // tokenizer: what a job's data.tokenizer should say
  std::int64_t vocab_size = 0;
  std::int64_t invalid_utf8_bytes = 0;
  std::int64_t special_tokens_in_text = 0;  // spelled out in it, and encoded as what they spell
  SplitSummary train, validation;
};

// Writes OUTPUT/train-NNNNN.bin, validation.bin, the tokenizer and dataset.json. All of it appears at once, by a
// rename, when it is complete. DataError for the text, ConfigError for the options.
PrepareSummary prepare_data(const PrepareOptions& options);

// What dataset.json holds; docs/token-files.md describes it.
std::string to_json(const PrepareSummary& summary);

}  // namespace tessera
