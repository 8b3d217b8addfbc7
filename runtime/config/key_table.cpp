#include "runtime/config/key_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/scalar.h"

namespace tessera::config {
namespace {

std::string bound_text(double value) {
  if (value >= 0x1p64) return "18446744073709551615";
  return number_text(value);
}

std::string integer_range(const Range& range) {
  if (range.min == range.max) return fmt::format("the integer {}", bound_text(range.min));
  // Bounds of integers are below 2^53 but for the seed's, and print without an exponent.
  const std::string max = range.max >= 0x1p64 ? bound_text(range.max) : fmt::format("{:.0f}", range.max);
  return fmt::format("an integer from {:.0f} to {}", range.min, max);
}

std::string number_range(const Range& range) {
  std::string text = fmt::format("a number {} {}", range.above_min ? "above" : "of at least", bound_text(range.min));
  text += fmt::format(" and {} {}", range.below_max ? "below" : "at most", bound_text(range.max));
  return text;
}

struct DefaultText {
  std::string operator()(const std::int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const std::uint64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return number_text(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const std::vector<double>* values) const {
    std::string text;
    for (const double value : *values) text += (text.empty() ? "" : ", ") + number_text(value);
    return '[' + text + ']';
  }
  template <class Unset>
  std::string operator()(const Unset*) const {
    return "none";
  }
};

}  // namespace

bool Range::contains(double value) const {
  return (above_min ? value > min : value >= min) && (below_max ? value < max : value <= max);
}

std::string join_words(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string_view KeyRow::section() const {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::string_view KeyRow::name() const {
  return path.substr(path.rfind('.') + 1);
}

std::string KeyRow::expected() const {
  std::string text;
  for (const std::string_view word : words) {
    text += word;
    text += ", ";
  }
  if (!words.empty()) {
    text.resize(text.size() - 2);
    if (kind == KeyKind::kWord) return join_words(words);
    text += kind == KeyKind::kBool ? ", " : " or ";
  }
  switch (kind) {
    case KeyKind::kInteger: return text + integer_range(range);
    case KeyKind::kNumber: return text + number_range(range);
    case KeyKind::kBool: return text + "true or false";
    case KeyKind::kByteSize: return "bytes, or a number with KiB, MiB, GiB or TiB";
    case KeyKind::kNumbers: return fmt::format("a list of two numbers, each {}", number_range(range).substr(9));
    case KeyKind::kTexts: return "a list of globs";
    case KeyKind::kSources: return "a list of globs or {path, weight}";
    case KeyKind::kGroups: return "a list of {match, learning_rate, weight_decay, frozen}";
    case KeyKind::kFaults: return "a list of {rank, step, fault, op, seconds}";
    case KeyKind::kSteps: return fmt::format("[first, last], each {}", integer_range(range));
    case KeyKind::kText: return "text";
    case KeyKind::kWord:
    case KeyKind::kAnything: break;
  }
  return text;
}

std::string KeyRow::default_text() const {
  if (!unset.empty()) return std::string(unset);
  if (const auto* of_job = std::get_if<FieldRef (*)(JobConfig&)>(&field)) {
    JobConfig defaults;
    return std::visit(DefaultText{}, (*of_job)(defaults));
  }
  if (const auto* of_source = std::get_if<FieldRef (*)(DataSource&)>(&field)) {
    DataSource defaults;
    return std::visit(DefaultText{}, (*of_source)(defaults));
  }
  return "none";
}

const KeyRow* find_row(std::string_view path) {
  const auto& rows = key_rows();
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const KeyRow& row) { return row.path == path; });
  return at == rows.end() ? nullptr : &*at;
}

bool is_section(std::string_view name) {
  return std::any_of(sections().begin(), sections().end(),
                     [&](const Section& section) { return section.name == name; });
}

}  // namespace tessera::config
