// Text to tokens and back. "bytes": 256 byte values. *.model: SentencePiece. *.json: a tokenizer.json of Hugging Face (tokenizer_file.h says which).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// U+2581, which SentencePiece writes for a space, and takes for one.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// One thread at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::int64_t vocab_size() const = 0;
  // DataError where the tokenizer cannot represent the text (invalid UTF-8, for a SentencePiece model that is not
  // exact; see load_tokenizer).
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  // DataError for an id outside the vocabulary. Special tokens of a tokenizer.json are spelled out; control tokens of a SentencePiece model have no
  // text.
  virtual std::string decode(std::span<const std::uint32_t> tokens) const = 0;
  virtual std::string name() const = 0;
  // True where decode(encode(x)) == x for every string of bytes, valid UTF-8 or not.
  virtual bool is_exact() const = 0;
  // The token that ends a text, where the tokenizer has one.
  virtual std::optional<std::uint32_t> end_of_text() const = 0;
  // Tokens at which generated text ends: the end of text, and what generation_config.json beside the tokenizer's file adds.
  virtual std::vector<std::uint32_t> stop_tokens() const;
  // What every text begins with (the post-processor of a tokenizer.json; add_bos_token of the tokenizer_config.json beside a SentencePiece model);
  // encode() leaves it out.
  virtual std::vector<std::uint32_t> text_prefix() const { return {}; }
  // Marks where a text begins or ends, or who speaks, rather than being text.
  virtual bool is_special(std::uint32_t token) const = 0;
  // Its files, which belong together: the tokenizer first.
  virtual std::vector<std::string> files() const = 0;
};

// spec: "bytes" or a path. DataError for what cannot be loaded.
//
// A SentencePiece model with byte pieces that neither normalises nor moves white space (ours do not) is exact: what it
// has no piece for, and bytes that are no UTF-8, become byte pieces. Any other model encodes and decodes as its makers
// defined it.
//
// A tokenizer.json gives the ids that Hugging Face's tokenizers gives without add_special_tokens: special tokens that are spelled out in the text
// count as such. Bytes that are no UTF-8, which that library cannot take, are a token each, and the text on either side is encoded on its own. It
// is exact unless it normalises, adds a space, or has tokens that take white space along.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

// ConfigError where the tokenizer has more tokens than a model's vocabulary; fewer are allowed: a vocabulary may be padded.
void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocab_size);

// Trains a SentencePiece BPE with byte fallback that round-trips any text (no normalisation, whitespace kept), and
// writes it to path (atomically). Deterministic for equal text and options: one thread, no sampling. vocab_size counts
// all pieces: unknown, begin and end of text (<unk>, <s>, </s>), 256 bytes, characters, merges. Memory is a small
// multiple of the text. DataError where the text is too small for the vocabulary, or the vocabulary for the text's
// characters.
void train_sentencepiece_bpe(const std::vector<std::string>& text_files, std::int64_t vocab_size,
                             const std::string& path);

// The same from a stream of texts: next() fills its argument and returns true, or returns false at the end. Texts are
// cut into lines, or groups of them, for training: a piece spans line ends only within one text.
void train_sentencepiece_bpe(const std::function<bool(std::string&)>& next, std::int64_t vocab_size,
                             const std::string& path);

}  // namespace tessera
