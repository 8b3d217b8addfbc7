#include "runtime/train/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "runtime/train/foreign_format.h"
#include "runtime/train/tokenizer_unicode.h"

namespace tessera {
namespace {

constexpr bool prints(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<char32_t, 256> kCharacters = [] {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) characters[byte] = prints(byte) ? static_cast<char32_t>(byte) : next++;
  return characters;
}();

constexpr char32_t kEnd = 0x144;  // behind the last character

constexpr std::array<std::int16_t, kEnd> kBytes = [] {
  std::array<std::int16_t, kEnd> bytes{};
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}();

}  // namespace

std::string alphabet_character(unsigned char byte) {
  const char32_t code = kCharacters[byte];
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    if (utf8_sequence(text) == 0) return std::nullopt;
    const Character character = first_character(text);
    if (character.code >= kEnd || kBytes[character.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[character.code]));
    text.remove_prefix(character.length);
  }
  return bytes;
}

}  // namespace tessera
