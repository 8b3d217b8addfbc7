#include "runtime/train/text_stream.h"

#include <algorithm>

#include "runtime/train/foreign_format.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr std::size_t kMostTokens = 256;                   // decoded again for each new one

}  // namespace

std::size_t complete_characters(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(text.size(), 3); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    if ((static_cast<std::uint8_t>(tail[0]) & 0xc0) == 0x80) continue;
    const bool is_cut = !is_utf8(tail) && is_utf8(tail, true);
    return is_cut ? text.size() - back : text.size();
  }
  return text.size();
}

std::string well_formed(std::string_view text) {
  std::string result;
  for (;;) {
    const std::size_t good = utf8_prefix(text);
    result += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) return result;
    result += kReplacement;
    text.remove_prefix(1);
  }
}

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::uint32_t> context) : tokenizer_(tokenizer) {
  std::erase_if(context, [&](std::uint32_t token) { return tokenizer.is_special(token); });
  const std::size_t kept = std::min<std::size_t>(context.size(), kMostTokens / 2);
  tokens_.assign(context.end() - static_cast<std::ptrdiff_t>(kept), context.end());
  taken_ = tokenizer_.decode(tokens_).size();
}

std::string TextStream::take(const std::string& text, std::size_t end) {
  if (end <= taken_) return "";
  const std::string result = well_formed(std::string_view(text).substr(taken_, end - taken_));
  taken_ = end;
  return result;
}

std::string TextStream::push(std::uint32_t token) {
  if (tokenizer_.is_special(token)) return "";
  tokens_.push_back(token);
  const std::string text = tokenizer_.decode(tokens_);
  std::size_t end = complete_characters(text);
  // A tokenizer that decodes characters itself writes U+FFFD for a part of one, and the character once it is whole.
  while (std::string_view(text).substr(0, end).ends_with(kReplacement)) end -= kReplacement.size();
  std::string result = take(text, end);
  if (taken_ == text.size() && tokens_.size() > kMostTokens) {
    tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(kMostTokens / 2));
    taken_ = tokenizer_.decode(tokens_).size();
  }
  return result;
}

std::string TextStream::finish() {
  const std::string text = tokenizer_.decode(tokens_);
  return take(text, text.size());
}

}  // namespace tessera
