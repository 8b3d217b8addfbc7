#include "runtime/train/tokenizer_unicode.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "runtime/base/error.h"
#include "runtime/train/foreign_format.h"

namespace tessera {
namespace {

struct Range {
  char32_t first, last;
};

// Letters and numbers of Unicode 15.1 and 16, which older releases of ICU (72 and 74) do not know: words must not depend on the system.
constexpr Range kNewLetters[] = {{0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
                                 {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
                                 {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
                                 {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
                                 {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
                                 {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d}};
constexpr Range kNewNumbers[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139},
                                 {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1e5f1, 0x1e5fa}};

bool is_in(std::span<const Range> ranges, char32_t code) {
  const auto after = std::ranges::upper_bound(ranges, code, {}, &Range::first);
  return after != ranges.begin() && code <= std::prev(after)->last;
}

CharClass look_up(char32_t code) {
  if (code == '\r' || code == '\n') return CharClass::kNewline;
  const auto point = static_cast<UChar32>(code);
  const std::uint32_t type = U_GET_GC_MASK(point);
  if ((type & U_GC_L_MASK) != 0) return CharClass::kLetter;
  if ((type & U_GC_N_MASK) != 0) return CharClass::kNumber;
  if (type == U_GC_CN_MASK) {  // not assigned yet, as far as ICU knows
    if (is_in(kNewLetters, code)) return CharClass::kLetter;
    if (is_in(kNewNumbers, code)) return CharClass::kNumber;
  }
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
