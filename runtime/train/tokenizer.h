// Text to tokens and back. "bytes": 256 byte values. *.model: SentencePiece. tokenizer.json comes with the Hugging Face import.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const std::uint32_t> tokens) const = 0;
  virtual std::string name() const = 0;
};

// spec: "bytes" or a path. DataError for what cannot be loaded; ConfigError for a format that is not available yet (tokenizer.json).
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

// Trains a SentencePiece BPE with byte fallback that round-trips any text (no normalisation, whitespace kept), and writes it to path.
// Deterministic for equal text and options. vocab_size counts all pieces.
void train_sentencepiece_bpe(const std::vector<std::string>& text_files, std::int64_t vocab_size, const std::string& path);

}  // namespace tessera
