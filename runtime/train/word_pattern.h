// Cutting text into the words that byte-pair encoding works on. The patterns are those of the models' own tokenizers, written here as scanners of
// linear time; L, N and s are Unicode's letters, numbers and white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class WordPattern : std::uint8_t {
  // 's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^sLN]+|s+(?!S)|s+
  kGpt2,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nLN]?L+|N{1,3}| ?[^sLN]+[\r\n]*|s*[\r\n]+|s+(?!S)|s+
  kLlama3,
  // The same with single numbers: N in place of N{1,3}
  kQwen2,
};

// The pattern whose regular expression this is, as tokenizer.json files spell it.
std::optional<WordPattern> find_word_pattern(std::string_view regular_expression);
std::string_view regular_expression(WordPattern pattern);

// Length in bytes of the first word of text, which is not empty and well-formed UTF-8. Every text is the sequence of its words.
std::size_t first_word(WordPattern pattern, std::string_view text);

}  // namespace tessera
