#include "runtime/train/tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/train/foreign_format.h"
#include "runtime/train/json_tokenizer.h"
#include "runtime/train/tokenizer_companions.h"

namespace tessera {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocab_size() const override { return 256; }

  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(static_cast<std::uint8_t>(c));
    return tokens;
  }

  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::uint32_t token : tokens) {
      if (token > 255) throw DataError(fmt::format("token id {} is no byte; the tokenizer 'bytes' has 256", token));
      text.push_back(static_cast<char>(token));
    }
    return text;
  }

  std::string name() const override { return "bytes"; }
  bool is_exact() const override { return true; }
  std::optional<std::uint32_t> end_of_text() const override { return std::nullopt; }
  bool is_special(std::uint32_t /*token*/) const override { return false; }
  std::vector<std::string> files() const override { return {}; }
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : path_(path) {
    std::ifstream in(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (!in.good() && !in.eof()) throw DataError(fmt::format("{}: cannot read the tokenizer", path));
    // A model is a protobuf whose first field (1, length-delimited) is its first piece: anything else would only make
    // the parser complain.
    if (bytes.empty() || bytes[0] != '\n' || !processor_.LoadFromSerializedProto(bytes).ok()) {
      const auto foreign =
          foreign_format(std::as_bytes(std::span(bytes)).first(std::min<std::size_t>(bytes.size(), 512)));
      const bool is_model_prefix = foreign == "SentencePiece model";
      throw DataError(fmt::format("{}: is not a SentencePiece model{}", path,
                                  foreign && !is_model_prefix
                                      ? fmt::format(" but {}", *foreign)
                                      : std::string(is_model_prefix ? ", or is cut short" : "")));
    }
    build_pieces();
    read_beside(read_companions(std::filesystem::path(path).parent_path().string()));
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::string name() const override { return path_; }
  bool is_exact() const override { return exact_; }

  std::optional<std::uint32_t> end_of_text() const override {
    const int id = processor_.eos_id();
    return id >= 0 ? std::optional(static_cast<std::uint32_t>(id)) : std::nullopt;
  }

  bool is_special(std::uint32_t token) const override {
    return token < pieces_.size() && processor_.IsControl(static_cast<int>(token));
  }
  std::vector<std::uint32_t> stop_tokens() const override { return stop_tokens_; }
  std::vector<std::uint32_t> text_prefix() const override { return text_prefix_; }
  std::vector<std::string> files() const override { return files_; }

  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> tokens;
    if (!exact_) {
      const std::size_t good = utf8_prefix(text);
      if (good != text.size()) {
        throw DataError(fmt::format("{}: cannot encode byte 0x{:02x} at offset {}: invalid UTF-8", path_,
                                    static_cast<std::uint8_t>(text[good]), good));
      }
      encode_run(text, tokens);
      return tokens;
    }
    // Byte pieces carry what SentencePiece would change: bytes that are no UTF-8, NUL, and the space mark itself, which
    // would come back as a space. The runs between go to the model.
    std::size_t run = 0, position = 0;
    while (position < text.size()) {
      const std::string_view rest = text.substr(position);
      const std::size_t length = utf8_sequence(rest);
      const bool plain = length > 0 && rest[0] != '\0' && !(length == 3 && rest.starts_with(kSpaceMark));
      if (plain) {
        position += length;
        continue;
      }
      encode_words(text.substr(run, position - run), tokens);
      const std::size_t end = position + std::max<std::size_t>(length, 1);
      for (; position < end; ++position) tokens.push_back(byte_ids_[static_cast<std::uint8_t>(text[position])]);
      run = end;
    }
    encode_words(text.substr(run), tokens);
    return tokens;
  }

  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    std::vector<int> ids;
    for (const std::uint32_t token : tokens) {
      if (token >= pieces_.size())
        throw DataError(fmt::format("token id {} is outside the {} pieces of {}", token, pieces_.size(), path_));
      if (exact_) {
        text += pieces_[token];
      } else {
        ids.push_back(static_cast<int>(token));
      }
    }
    if (!exact_ && !processor_.Decode(ids, &text).ok())
      throw DataError(fmt::format("{}: cannot decode {} tokens", path_, tokens.size()));
    return text;
  }

 private:
  // SentencePiece's time grows faster than its text: some kilobytes at a time take half the time of a hundred. Cut
  // before a space that follows something else: no piece of a model that splits at white space reaches across, so the
  // tokens are those of the whole.
  void encode_words(std::string_view text, std::vector<std::uint32_t>& tokens) const {
    constexpr std::size_t bytes = 2048, most_bytes = 65536;
    while (text.size() > bytes) {
      std::size_t cut = bytes;
      while (cut < std::min(text.size(), most_bytes) && (text[cut] != ' ' || text[cut - 1] == ' ')) ++cut;
      while (cut < text.size() && (static_cast<std::uint8_t>(text[cut]) & 0xc0) == 0x80)
        ++cut;  // not inside a character
      encode_run(text.substr(0, cut), tokens);
      text.remove_prefix(cut);
    }
    encode_run(text, tokens);
  }

  void encode_run(std::string_view text, std::vector<std::uint32_t>& tokens) const {
    if (text.empty()) return;
    std::vector<int> ids;
    if (const auto status = processor_.Encode(text, &ids); !status.ok()) {
      throw DataError(fmt::format("{}: cannot encode {} bytes: {}", path_, text.size(), status.ToString()));
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  // The bytes that each piece stands for, and whether that table alone decodes: see load_tokenizer.
  void build_pieces() {
    const int size = processor_.GetPieceSize();
    std::size_t num_bytes = 0;
    byte_ids_.assign(256, 0);
    for (int id = 0; id < size; ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      std::string bytes;
      if (processor_.IsByte(id)) {
        const int value = std::stoi(piece.substr(3, 2), nullptr, 16);  // <0xAB>
        byte_ids_[static_cast<std::size_t>(value)] = static_cast<std::uint32_t>(id);
        bytes.push_back(static_cast<char>(value));
        ++num_bytes;
      } else if (processor_.IsUnknown(id)) {
        bytes = "\xef\xbf\xbd";
      } else if (!processor_.IsControl(id)) {
        for (std::size_t i = 0; i < piece.size();) {
          const bool space = piece.compare(i, kSpaceMark.size(), kSpaceMark) == 0;
          bytes.push_back(space ? ' ' : piece[i]);
          i += space ? kSpaceMark.size() : 1;
        }
      }
      pieces_.push_back(std::move(bytes));
    }
    exact_ = num_bytes == 256;
    // Texts that a model with a dummy prefix, white space rules or normalisation would change (fullwidth A, ligature
    // fi, composed and decomposed accents, no-break and ideographic space).
    for (const char* probe : {"a", " a", "a  b ", "\n a\n\n", "\t\r\n", "\xef\xbc\xa1\xef\xac\x81",
                              "\xc3\xa9 e\xcc\x81", "\xc2\xa0x\xe3\x80\x80"}) {
      if (exact_) exact_ = decode(encode(probe)) == probe;
    }
  }

  // A model has both ends of a text, and does not say whether texts begin with the one. Which token is the end it says itself.
  void read_beside(const TokenizerCompanions& companions) {
    files_ = {path_};
    files_.insert(files_.end(), companions.files.begin(), companions.files.end());
    if (companions.add_bos_token && processor_.bos_id() >= 0)
      text_prefix_ = {static_cast<std::uint32_t>(processor_.bos_id())};
    stop_tokens_ = Tokenizer::stop_tokens();
    for (const std::uint32_t id : companions.stop_tokens)
      if (std::ranges::find(stop_tokens_, id) == stop_tokens_.end()) stop_tokens_.push_back(id);
  }

  std::string path_;
  std::vector<std::string> files_;
  std::vector<std::uint32_t> text_prefix_, stop_tokens_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> pieces_;
  std::vector<std::uint32_t> byte_ids_;
  bool exact_ = false;
};

}  // namespace

std::vector<std::uint32_t> Tokenizer::stop_tokens() const {
  const auto end = end_of_text();
  return end ? std::vector<std::uint32_t>{*end} : std::vector<std::uint32_t>{};
}

void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocab_size) {
  if (tokenizer.vocab_size() <= vocab_size) return;
  throw ConfigError(fmt::format("data.tokenizer: {} has {} tokens, model.vocab_size is {}", tokenizer.name(),
                                tokenizer.vocab_size(), vocab_size));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  const std::filesystem::path path(spec);
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  constexpr const char* kinds = "'bytes', a SentencePiece *.model or a tokenizer.json";
  if (!std::filesystem::exists(status)) throw DataError(fmt::format("{}: no such tokenizer; expected {}", spec, kinds));
  if (!std::filesystem::is_regular_file(status))
    throw DataError(fmt::format("{}: is not a file; expected {}", spec, kinds));
  if (path.extension() == ".json") return load_json_tokenizer(spec);
  return std::make_unique<SentencePieceTokenizer>(spec);
}

}  // namespace tessera
