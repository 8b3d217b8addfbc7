#include "runtime/config/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace tessera::config {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Splits off a sign; true where it is a minus.
bool take_sign(std::string_view& text) {
  if (text.empty() || (text[0] != '+' && text[0] != '-')) return false;
  const bool negative = text[0] == '-';
  text.remove_prefix(1);
  return negative;
}

// The core schema's float without its sign: digits[.digits][e[sign]digits] or .digits…
bool is_decimal_number(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t first = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - first;
  };
  const std::size_t whole = digits();
  if (whole > 1 && text[0] == '0') return false;
  std::size_t fraction = 0;
  if (i < text.size() && text[i] == '.') {
    ++i;
    fraction = digits();
  }
  if (whole + fraction == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

std::string strip_zeros(std::string_view digits) {
  const std::size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  return std::string(digits.substr(first));
}

}  // namespace

double Integer::approximate() const {
  const double value = overflow ? HUGE_VAL : static_cast<double>(magnitude);
  return negative ? -value : value;
}

std::optional<Integer> parse_integer(std::string_view text) {
  Integer out;
  out.negative = take_sign(text);
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out.magnitude);
  out.overflow = code != std::errc{};
  return out;
}

std::string integer_hint(std::string_view text) {
  std::string_view rest = text;
  const std::string sign = take_sign(rest) ? "-" : "";
  if (rest.empty()) return {};
  const std::string small = lower(rest);
  for (const auto& [prefix, base] : {std::pair{"0x", 16}, std::pair{"0o", 8}, std::pair{"0b", 2}}) {
    if (!small.starts_with(prefix)) continue;
    std::uint64_t value = 0;
    const char* last = small.data() + small.size();
    const auto [end, code] = std::from_chars(small.data() + 2, last, value, base);
    return code == std::errc{} && end == last ? fmt::format("{}{} (decimal)", sign, value) : std::string{};
  }
  std::string digits;
  for (const char c : rest) {
    if (c == '_' || c == ',') continue;
    if (!is_digit(c)) {
      digits.clear();
      break;
    }
    digits += c;
  }
  if (!digits.empty() && digits.size() < rest.size())
    return fmt::format("{}{} (digits only)", sign, strip_zeros(digits));
  if (digits.size() > 1 && digits[0] == '0') return fmt::format("{}{} (no leading zeros)", sign, strip_zeros(digits));
  constexpr double exact_limit = 9007199254740992.0;  // 2^53
  if (const auto value = parse_number(rest); value && *value == std::floor(*value) && *value < exact_limit) {
    return fmt::format("{}{}", sign, static_cast<std::int64_t>(*value));
  }
  return {};
}

std::optional<double> parse_number(std::string_view text) {
  const bool negative = take_sign(text);
  if (!is_decimal_number(text)) return std::nullopt;
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value) || std::fpclassify(value) == FP_SUBNORMAL) return std::nullopt;
  return negative ? -value : value;
}

std::string number_hint(std::string_view text) {
  std::string_view rest = text;
  const std::string sign = take_sign(rest) ? "-" : "";
  const std::string small = lower(rest);
  if (small == ".nan" || small == "nan" || small == ".inf" || small == "inf" || small == "infinity")
    return "a finite number";
  std::string plain;
  std::copy_if(rest.begin(), rest.end(), std::back_inserter(plain), [](char c) { return c != '_' && c != ','; });
  if (plain.size() < rest.size() && parse_number(plain)) return sign + plain + " (digits only)";
  if (plain.size() > 1 && plain[0] == '0' && is_digit(plain[1])) {
    const std::string stripped = plain.substr(std::min(plain.find_first_not_of('0'), plain.size() - 1));
    const std::string whole = stripped.front() == '.' || lower(stripped).front() == 'e' ? "0" + stripped : stripped;
    if (parse_number(whole)) return sign + whole + " (no leading zeros)";
  }
  if (is_decimal_number(rest)) return "a number that a double holds";
  if (small.starts_with("0x")) return integer_hint(text);
  return {};
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::string bool_hint(std::string_view text) {
  const std::string small = lower(text);
  for (const std::string_view yes : {"1", "yes", "y", "on", "true", "t"}) {
    if (small == yes) return "true";
  }
  for (const std::string_view no : {"0", "no", "n", "off", "false", "f"}) {
    if (small == no) return "false";
  }
  return {};
}

bool looks_like_another_type(std::string_view text) {
  const std::string small = lower(text);
  for (const std::string_view word :
       {"", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "+.inf", "-.inf"}) {
    if (small == word) return true;
  }
  if (parse_integer(text) || !integer_hint(text).empty()) return true;
  std::string_view rest = text;
  take_sign(rest);
  return is_decimal_number(rest);
}

std::string number_text(double value) {
  return fmt::format("{}", value);
}

std::optional<std::int64_t> parse_byte_size(std::string_view text) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  const std::string_view digits = text.substr(0, end);
  std::string_view unit = end == std::string_view::npos ? std::string_view{} : text.substr(end);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::array<std::pair<std::string_view, int>, 5> units{
      {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  for (const auto& [name, shift] : units) {
    if (unit != name || (name.empty() && end != std::string_view::npos)) continue;
    const auto number = parse_number(digits);
    if (!number) return std::nullopt;
    const double bytes = std::ldexp(*number, shift);
    if (bytes < 1 || bytes > 0x1p60 || bytes != std::floor(bytes)) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  }
  return std::nullopt;
}

}  // namespace tessera::config
