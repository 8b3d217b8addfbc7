#include "runtime/train/tokenizer_unicode.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <array>

#include "runtime/base/error.h"
#include "runtime/train/foreign_format.h"

namespace tessera {
namespace {

CharClass look_up(char32_t code) {
  if (code == '\r' || code == '\n') return CharClass::kNewline;
  const auto point = static_cast<UChar32>(code);
  const std::uint32_t type = U_GET_GC_MASK(point);
  if ((type & U_GC_L_MASK) != 0) return CharClass::kLetter;
  if ((type & U_GC_N_MASK) != 0) return CharClass::kNumber;
  return u_isUWhiteSpace(point) != 0 ? CharClass::kSpace : CharClass::kOther;
}

}  // namespace

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::size_t length = byte(0) < 0x80 ? 1 : utf8_sequence(text);
  switch (length) {
    case 1: return {byte(0), 1};
    case 2: return {static_cast<char32_t>((byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU)), 2};
    case 3: return {static_cast<char32_t>((byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU)), 3};
    case 4:
      return {static_cast<char32_t>((byte(0) & 0x07U) << 18 | (byte(1) & 0x3fU) << 12 | (byte(2) & 0x3fU) << 6 |
                                    (byte(3) & 0x3fU)),
              4};
    default: throw InternalError("first_character: the text is not UTF-8");
  }
}

CharClass class_of(char32_t code) {
  constexpr char32_t table_size = 0x250;  // Latin
  static const auto table = [] {
    std::array<CharClass, table_size> classes{};
    for (char32_t c = 0; c < table_size; ++c) classes[c] = look_up(c);
    return classes;
  }();
  return code < table_size ? table[code] : look_up(code);
}

bool is_word_character(char32_t code) {
  const auto point = static_cast<UChar32>(code);
  constexpr std::uint32_t types = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_isUAlphabetic(point) != 0 || (U_GET_GC_MASK(point) & types) != 0 || code == 0x200c || code == 0x200d;
}

std::string to_nfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  if (U_SUCCESS(status) != 0) {
    const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
    nfc->normalizeUTF8(0, piece, sink, nullptr, status);
  }
  require(U_SUCCESS(status) != 0, fmt::format("ICU cannot normalise: {}", u_errorName(status)));
  return result;
}

}  // namespace tessera
