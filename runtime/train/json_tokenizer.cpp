#include "runtime/train/json_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/train/byte_alphabet.h"
#include "runtime/train/foreign_format.h"
#include "runtime/train/tokenizer_unicode.h"

namespace tessera {
namespace {

// Of words that were encoded before. Bounded: when it is full it begins anew, which texts with few words never see.
class WordCache {
 public:
  const std::vector<std::uint32_t>* find(std::string_view word) {
    if (word.size() > kLongestWord) return nullptr;
    key_.assign(word);
    const auto found = words_.find(key_);
    return found == words_.end() ? nullptr : &found->second;
  }
  void insert(std::string_view word, std::vector<std::uint32_t> tokens) {
    if (word.size() > kLongestWord) return;
    if (words_.size() >= kMostWords) words_.clear();
    words_.emplace(word, std::move(tokens));
  }

 private:
  static constexpr std::size_t kLongestWord = 64, kMostWords = std::size_t{1} << 16;
  std::unordered_map<std::string, std::vector<std::uint32_t>> words_;
  std::string key_;
};

std::array<std::uint32_t, 256> byte_tokens_of(const TokenizerFile& file) {
  std::unordered_map<std::string_view, std::uint32_t> ids;
  for (std::uint32_t id = 0; id < file.vocabulary.size(); ++id) ids.emplace(file.vocabulary[id], id);
  std::array<std::uint32_t, 256> tokens{};
  for (int byte = 0; byte < 256; ++byte)
    tokens[static_cast<std::size_t>(byte)] = ids.at(alphabet_character(static_cast<unsigned char>(byte)));
  return tokens;
}

std::vector<AddedToken> chosen(const std::vector<AddedToken>& tokens, bool normalized, bool nfc) {
  std::vector<AddedToken> result;
  for (AddedToken token : tokens) {
    if (token.normalized != normalized) continue;
    if (normalized && nfc) token.content = to_nfc(token.content);
    result.push_back(std::move(token));
  }
  return result;
}

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(TokenizerFile file, const TokenizerCompanions& companions, std::string path)
      : path_(std::move(path)),
        companion_files_(companions.files),
        byte_tokens_(byte_tokens_of(file)),
        bpe_(byte_tokens_, file.merges),
        in_text_(chosen(file.added_tokens, false, file.normalize_nfc)),
        in_normalized_(chosen(file.added_tokens, true, file.normalize_nfc)),
        pattern_(file.pattern),
        nfc_(file.normalize_nfc),
        prefix_space_(file.add_prefix_space),
        text_prefix_(file.text_prefix) {
    build_pieces(file);
    exact_ = !nfc_ && !prefix_space_ && std::ranges::none_of(file.added_tokens, [](const AddedToken& token) {
      return token.lstrip || token.rstrip;
    });
    find_end_of_text(file, companions);
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::string name() const override { return path_; }
  bool is_exact() const override { return exact_; }
  std::optional<std::uint32_t> end_of_text() const override { return end_of_text_; }
  std::vector<std::uint32_t> stop_tokens() const override { return stop_tokens_; }
  std::vector<std::uint32_t> text_prefix() const override { return text_prefix_; }
  bool is_special(std::uint32_t token) const override { return token < special_.size() && special_[token]; }
  std::vector<std::string> files() const override {
    std::vector<std::string> files = {path_};
    files.insert(files.end(), companion_files_.begin(), companion_files_.end());
    return files;
  }

  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> tokens;
    for (const TextPart& part : in_text_.split(text)) {
      if (part.token) {
        tokens.push_back(*part.token);
      } else {
        encode_bytes(part.text, tokens);
      }
    }
    return tokens;
  }

  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    for (const std::uint32_t token : tokens) {
      if (token >= pieces_.size())
        throw DataError(fmt::format("token id {} is outside the {} tokens of {}", token, pieces_.size(), path_));
      text += pieces_[token];
    }
    return text;
  }

 private:
  // What is no UTF-8 is cut out, a byte a token.
  void encode_bytes(std::string_view text, std::vector<std::uint32_t>& tokens) const {
    while (!text.empty()) {
      const std::size_t good = utf8_prefix(text);
      encode_text(text.substr(0, good), tokens);
      text.remove_prefix(good);
      if (text.empty()) return;
      tokens.push_back(byte_tokens_[static_cast<std::uint8_t>(text[0])]);
      text.remove_prefix(1);
    }
  }

  void encode_text(std::string_view text, std::vector<std::uint32_t>& tokens) const {
    const std::string normalized = nfc_ ? to_nfc(text) : std::string();
    for (const TextPart& part : in_normalized_.split(nfc_ ? std::string_view(normalized) : text)) {
      if (part.token) {
        tokens.push_back(*part.token);
      } else if (prefix_space_ && part.text[0] != ' ') {
        encode_words(" " + std::string(part.text), tokens);
      } else {
        encode_words(part.text, tokens);
      }
    }
  }

  void encode_words(std::string_view text, std::vector<std::uint32_t>& tokens) const {
    while (!text.empty()) {
      const std::size_t length = first_word(pattern_, text);
      encode_word(text.substr(0, length), tokens);
      text.remove_prefix(length);
    }
  }

  void encode_word(std::string_view word, std::vector<std::uint32_t>& tokens) const {
    if (const auto* known = cache_.find(word)) {
      tokens.insert(tokens.end(), known->begin(), known->end());
      return;
    }
    std::vector<std::uint32_t> found;
    if (const auto whole = whole_words_.find(std::string(word)); whole != whole_words_.end()) {
      found = {whole->second};
    } else {
      bpe_.encode(word, found);
    }
    tokens.insert(tokens.end(), found.begin(), found.end());
    cache_.insert(word, std::move(found));
  }

  void build_pieces(const TokenizerFile& file) {
    pieces_.resize(static_cast<std::size_t>(file.num_tokens()));
    special_.resize(pieces_.size(), false);
    for (std::uint32_t id = 0; id < file.vocabulary.size(); ++id) {
      const std::string& text = file.vocabulary[id];
      const auto bytes = bytes_of_alphabet(text);
      pieces_[id] = bytes.value_or(text);
      if (file.ignore_merges && bytes) whole_words_.emplace(*bytes, id);
    }
    for (const AddedToken& token : file.added_tokens) {
      pieces_[token.id] = token.content;
      special_[token.id] = token.special;
    }
  }

  // Which token ends a text no tokenizer.json says. Without a file that does, one of the names that models use, where one alone is there.
  void find_end_of_text(const TokenizerFile& file, const TokenizerCompanions& companions) {
    const auto find = [&](std::string_view content) -> std::optional<std::uint32_t> {
      for (const AddedToken& token : file.added_tokens)
        if (token.content == content) return token.id;
      return std::nullopt;
    };
    if (companions.end_of_text) {
      end_of_text_ = find(*companions.end_of_text);
      if (!end_of_text_) {
        throw DataError(fmt::format("{}: eos_token: found \"{}\", which is not among the added_tokens of {}",
                                    companions.end_source, *companions.end_of_text, path_));
      }
    } else {
      int found = 0;
      for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
        const auto id = find(usual);
        if (!id || !special_[*id]) continue;
        end_of_text_ = id;
        ++found;
      }
      if (found > 1) end_of_text_.reset();
    }
    if (end_of_text_) stop_tokens_.push_back(*end_of_text_);
    for (const std::uint32_t id : companions.stop_tokens) {
      if (std::ranges::find(stop_tokens_, id) == stop_tokens_.end()) stop_tokens_.push_back(id);
    }
  }

  std::string path_;
  std::vector<std::string> companion_files_;
  std::array<std::uint32_t, 256> byte_tokens_;
  Bpe bpe_;
  AddedTokenSplitter in_text_, in_normalized_;
  WordPattern pattern_;
  bool nfc_, prefix_space_, exact_ = false;
  std::vector<std::uint32_t> text_prefix_, stop_tokens_;
  std::optional<std::uint32_t> end_of_text_;
  std::vector<std::string> pieces_;  // the bytes of each token
  std::vector<bool> special_;
  std::unordered_map<std::string, std::uint32_t> whole_words_;  // where merges are ignored for them
  mutable WordCache cache_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_json_tokenizer(TokenizerFile file, const TokenizerCompanions& companions,
                                               const std::string& path) {
  return std::make_unique<JsonTokenizer>(std::move(file), companions, path);
}

std::unique_ptr<Tokenizer> load_json_tokenizer(const std::string& path) {
  return make_json_tokenizer(read_tokenizer_file(path),
                             read_companions(std::filesystem::path(path).parent_path().string()), path);
}

}  // namespace tessera
