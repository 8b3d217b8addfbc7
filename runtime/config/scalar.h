// Scalars from their text, by YAML 1.2's core schema and nothing looser. yaml-cpp's own conversions are never used:
// they read 0010 as 8, accept hex, and round through streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::config {

// An integer of any sign that 64 bits of magnitude hold.
struct Integer {
  bool negative = false;
  std::uint64_t magnitude = 0;
  bool overflow = false;  // more digits than 64 bits: the magnitude means nothing
  double approximate() const;
};

// [+-]?(0|[1-9][0-9]*), nothing else.
std::optional<Integer> parse_integer(std::string_view text);
// What the writer of a refused integer may have meant, in the form that is accepted ("10 (no leading zeros)"), or "".
std::string integer_hint(std::string_view text);

// The double nearest to the decimal text (correctly rounded). nullopt where it is no decimal number, has leading zeros,
// or is not a finite normal double or zero.
std::optional<double> parse_number(std::string_view text);
std::string number_hint(std::string_view text);

std::optional<bool> parse_bool(std::string_view text);  // true | false
std::string bool_hint(std::string_view text);

// True for text that YAML readers may take for something else than text: null, booleans of 1.1 and 1.2, numbers of any
// base.
bool looks_like_another_type(std::string_view text);

// Shortest text that reads back to the same double.
std::string number_text(double value);

// Bytes: a whole or decimal number with an optional KiB, MiB, GiB or TiB ("8GiB", "1.5 GiB", "1000000"). nullopt where
// it is not, where it is no whole number of bytes, is 0, or is above 2^60.
std::optional<std::int64_t> parse_byte_size(std::string_view text);

}  // namespace tessera::config
