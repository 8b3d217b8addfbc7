#include "runtime/train/added_tokens.h"

#include <algorithm>
#include <functional>

#include "runtime/train/foreign_format.h"
#include "runtime/train/tokenizer_unicode.h"

namespace tessera {
namespace {

bool is_space_at(std::string_view text) {
  return utf8_sequence(text) > 0 && is_white_space(class_of(first_character(text).code));
}

// The start of the last character of text, which is not empty; its last byte where that is no UTF-8.
std::size_t last_character(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(text.size(), 4); ++back) {
    if (utf8_sequence(text.substr(text.size() - back)) == back) return text.size() - back;
  }
  return text.size() - 1;
}

bool starts_with_word(std::string_view text) {
  return utf8_sequence(text) > 0 && is_word_character(first_character(text).code);
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && starts_with_word(text.substr(last_character(text)));
}

}  // namespace

AddedTokenSplitter::AddedTokenSplitter(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty()) continue;
    by_content_[content] = i;
    lengths_[static_cast<std::uint8_t>(content[0])].push_back(content.size());
  }
  for (auto& lengths : lengths_) {
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  }
}

const AddedToken* AddedTokenSplitter::find(std::string_view text) const {
  for (const std::size_t length : lengths_[static_cast<std::uint8_t>(text[0])]) {
    if (length > text.size()) continue;
    if (const auto found = by_content_.find(text.substr(0, length)); found != by_content_.end())
      return &tokens_[found->second];
  }
  return nullptr;
}

std::vector<TextPart> AddedTokenSplitter::split(std::string_view text) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;  // up to here text is in parts
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = find(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t start = at, stop = at + token->content.size();
    at = stop;
    if (token->single_word && (ends_with_word(text.substr(0, start)) || starts_with_word(text.substr(stop)))) continue;
    if (token->lstrip) {
      while (start > done) {
        const std::size_t before = last_character(text.substr(0, start));
        if (!is_space_at(text.substr(before))) break;
        start = before;
      }
      start = std::max(start, done);
    }
    if (token->rstrip) {
      while (stop < text.size() && is_space_at(text.substr(stop))) stop += utf8_sequence(text.substr(stop));
    }
    // White space that an earlier token took may hold the start of this one: the token counts all the same.
    if (done < start) parts.push_back({text.substr(done, start - done), std::nullopt});
    parts.push_back({text.substr(start, stop - start), token->id});
    done = stop;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
  return parts;
}

}  // namespace tessera
