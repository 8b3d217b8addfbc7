#include "runtime/train/word_pattern.h"

#include <array>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/train/tokenizer_unicode.h"

namespace tessera {
namespace {

constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// A character and its class; kOther of no length at the end.
struct Seen {
  CharClass type = CharClass::kOther;
  std::size_t length = 0;
  explicit operator bool() const { return length > 0; }
};

Seen see(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const Character character = first_character(text.substr(at));
  return {class_of(character.code), character.length};
}

// Where the run of characters of this class that begins at `at` ends, or its first `most`.
std::size_t run_end(std::string_view text, std::size_t at, CharClass type, std::size_t most = kNoLimit) {
  for (std::size_t n = 0; n < most; ++n) {
    const Seen next = see(text, at);
    if (!next || next.type != type) break;
    at += next.length;
  }
  return at;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

// Length of 's, 't, 're, 've, 'm, 'll or 'd at the start of text; 0 where there is none.
std::size_t contraction(std::string_view text, bool any_case) {
  if (text[0] != '\'') return 0;
  // Case folding takes the long s for an s.
  if (any_case && text.substr(1).starts_with("\xc5\xbf")) return 3;
  for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (text.size() <= ending.size()) continue;
    bool same = true;
    for (std::size_t i = 0; i < ending.size(); ++i) {
      const char c = text[1 + i];
      same = same && (any_case ? lower(c) : c) == ending[i];
    }
    if (same) return 1 + ending.size();
  }
  return 0;
}

// \s+(?!\S)|\s+: white space that ends the text, or all but its last character, which belongs to what follows.
std::size_t white_space_word(std::string_view text) {
  std::size_t end = 0, last = 0;
  for (Seen next = see(text, 0); next && is_white_space(next.type); next = see(text, end)) {
    last = end;
    end += next.length;
  }
  return end == text.size() || last == 0 ? end : last;
}

std::size_t gpt2_word(std::string_view text) {
  if (const std::size_t length = contraction(text, false)) return length;
  const std::size_t from = text[0] == ' ' ? 1 : 0;
  const Seen first = see(text, from);
  if (first && !is_white_space(first.type)) return run_end(text, from, first.type);
  return white_space_word(text);
}

std::size_t llama3_word(std::string_view text, std::size_t most_numbers) {
  if (const std::size_t length = contraction(text, true)) return length;
  const Seen first = see(text, 0);
  if (first.type == CharClass::kLetter) return run_end(text, 0, CharClass::kLetter);
  if (first.type == CharClass::kNumber) return run_end(text, 0, CharClass::kNumber, most_numbers);
  if (first.type != CharClass::kNewline && see(text, first.length).type == CharClass::kLetter) {
    return run_end(text, first.length, CharClass::kLetter);
  }
  const std::size_t from = text[0] == ' ' ? 1 : 0;
  if (const Seen symbol = see(text, from); symbol && symbol.type == CharClass::kOther) {
    return run_end(text, run_end(text, from, CharClass::kOther), CharClass::kNewline);
  }
  std::size_t end = 0, after_newline = 0;
  for (Seen next = first; next && is_white_space(next.type); next = see(text, end)) {
    end += next.length;
    if (next.type == CharClass::kNewline) after_newline = end;
  }
  return after_newline > 0 ? after_newline : white_space_word(text);
}

}  // namespace

std::string_view regular_expression(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::kGpt2: return kGpt2Expression;
    case WordPattern::kLlama3: return kLlama3Expression;
    case WordPattern::kQwen2: return kQwen2Expression;
  }
  throw InternalError("regular_expression: unknown pattern");
}

std::optional<WordPattern> find_word_pattern(std::string_view expression) {
  for (const WordPattern pattern : {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2}) {
    if (regular_expression(pattern) == expression) return pattern;
  }
  return std::nullopt;
}

std::size_t first_word(WordPattern pattern, std::string_view text) {
  require(!text.empty(), "first_word: the text is not empty");
  if (pattern == WordPattern::kGpt2) return gpt2_word(text);
  return llama3_word(text, pattern == WordPattern::kLlama3 ? 3 : 1);
}

}  // namespace tessera
