// What the tokenizers of tokenizer.json ask about characters: Unicode 16, from the system's ICU and a table of what older ones lack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

enum class CharClass : std::uint8_t {
  kLetter,   // \p{L}
  kNumber,   // \p{N}
  kNewline,  // \r and \n, which are white space too
  kSpace,    // \s: any other White_Space
  kOther,
};

// A character of well-formed UTF-8: code point and length in bytes.
struct Character {
  char32_t code = 0;
  std::size_t length = 0;
};
// The first character of text, which is not empty and well-formed.
Character first_character(std::string_view text);

CharClass class_of(char32_t code);
inline bool is_white_space(CharClass value) {
  return value == CharClass::kSpace || value == CharClass::kNewline;
}
// \w: letters, marks, decimal digits, connectors, joiners.
bool is_word_character(char32_t code);

// Normalization form C of well-formed text.
std::string to_nfc(std::string_view text);

}  // namespace tessera
