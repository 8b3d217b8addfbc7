// GPT-2's alphabet: every byte value as one printable character, so that tokens of bytes can be written as text. Bytes that print in Latin-1
// stand for themselves; the others, in ascending order, are U+0100 and up (a space is "Ġ", U+0120).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The character of a byte, as UTF-8.
std::string alphabet_character(unsigned char byte);
// The bytes that a token's text stands for; nothing where it holds another character.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

}  // namespace tessera
