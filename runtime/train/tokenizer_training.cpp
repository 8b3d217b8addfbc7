#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/train/atomic_file.h"
#include "runtime/train/foreign_format.h"
#include "runtime/train/tokenizer.h"

namespace tessera {
namespace {

// Texts cut into the sentences that SentencePiece trains on: groups of whole lines, or parts of a longer line, of about
// this many bytes. It counts words within sentences, so the cut decides only which few pairs across it go uncounted.
constexpr std::size_t kSentenceBytes = 4096;
// SentencePiece drops sentences that hold this character (it stands for "unknown" in training): cut it out instead.
constexpr std::string_view kUnknownMark = "\xe2\x81\x87";  // U+2047

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    do {
      while (position_ >= text_.size()) {
        position_ = 0;
        text_.clear();
        if (!next_(text_)) {
          done_ = true;
          return;
        }
      }
      cut();
    } while (sentence_.empty());
  }

 private:
  // The next sentence of text_: well-formed UTF-8 without NUL and the two marks.
  void cut() {
    sentence_.clear();
    std::size_t last_break = 0;  // length of sentence_ up to a line's end
    std::size_t after_break = position_;
    while (position_ < text_.size() && sentence_.size() < kSentenceBytes) {
      const std::string_view rest = std::string_view(text_).substr(position_);
      const std::size_t length = utf8_sequence(rest);
      const bool usable = length > 0 && rest[0] != '\0' &&
                          !(length == 3 && (rest.starts_with(kUnknownMark) || rest.starts_with(kSpaceMark)));
      position_ += std::max<std::size_t>(length, 1);
      if (!usable) return;
      sentence_.append(rest.substr(0, length));
      if (rest[0] == '\n') {
        last_break = sentence_.size();
        after_break = position_;
      }
    }
    if (position_ < text_.size() && last_break > 0) {
      sentence_.resize(last_break);
      position_ = after_break;
    }
  }

  const std::function<bool(std::string&)>& next_;
  std::string text_, sentence_;
  std::size_t position_ = 0;
  bool done_ = false;
};

}  // namespace

void train_sentencepiece_bpe(const std::function<bool(std::string&)>& next, std::int64_t vocab_size,
                             const std::string& path) {
  constexpr std::int64_t fewest = 256 + 3 + 1;
  if (vocab_size < fewest || vocab_size > 1'000'000) {
    throw DataError(fmt::format(
        "tokenizer: a vocabulary of {} pieces, expected {} to 1000000 (256 bytes and 3 control tokens come first)",
        vocab_size, fewest));
  }
  std::size_t num_bytes = 0;
  const std::function<bool(std::string&)> counted = [&](std::string& text) {
    const bool more = next(text);
    num_bytes += more ? text.size() : 0;
    return more;
  };
  Sentences sentences(counted);
  if (sentences.done()) throw DataError("tokenizer: no text to train on");
  std::string model;
  const sentencepiece::util::Status status = sentencepiece::SentencePieceTrainer::Train(
      {
          {"model_type", "bpe"},
          {"vocab_size", std::to_string(vocab_size)},
          {"byte_fallback", "true"},
          {"normalization_rule_name", "identity"},
          {"add_dummy_prefix", "false"},
          {"remove_extra_whitespaces", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"max_sentence_length", std::to_string(2 * kSentenceBytes)},
          {"num_threads", "1"},
          {"minloglevel", "3"},  // its progress report is not for our terminal
      },
      &sentences, &model);
  if (!status.ok()) {
    throw DataError(fmt::format("tokenizer: cannot make {} pieces of {} bytes of text: {}", vocab_size, num_bytes,
                                status.message()),
                    "choose another vocabulary size");
  }
  AtomicFile file(path);
  file.append(model);
  file.commit();
}

void train_sentencepiece_bpe(const std::vector<std::string>& text_files, std::int64_t vocab_size,
                             const std::string& path) {
  std::size_t file = 0;
  train_sentencepiece_bpe(
      [&](std::string& text) {
        if (file == text_files.size()) return false;
        std::ifstream in(text_files[file], std::ios::binary);
        if (!in) throw DataError(fmt::format("{}: cannot open", text_files[file]));
        text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        ++file;
        return true;
      },
      vocab_size, path);
}

}  // namespace tessera
