// How the loader reads the value of one key.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/chaos_faults.h"
#include "runtime/config/loader.h"
#include "runtime/config/name_pattern.h"
#include "runtime/config/scalar.h"
#include "runtime/config/suggest.h"

namespace tessera::config {
namespace {

constexpr std::string_view kNotYet = "not available yet";

bool has_word(const KeyRow& row, const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar &&
         std::find(row.words.begin(), row.words.end(), node.text) != row.words.end();
}

// Puts a word where the field can hold one: `auto` is the absent value of an optional.
void assign_word(FieldRef field, const std::string& word) {
  if (auto* text = std::get_if<std::string*>(&field)) **text = word;
  if (auto* optional = std::get_if<std::optional<std::int64_t>*>(&field)) (*optional)->reset();
}

void assign_integer(FieldRef field, const Integer& value, const std::string& text) {
  const auto bits = value.negative ? ~value.magnitude + 1 : value.magnitude;
  if (auto* to = std::get_if<std::int64_t*>(&field)) **to = static_cast<std::int64_t>(bits);
  if (auto* to = std::get_if<std::uint64_t*>(&field)) **to = bits;
  if (auto* to = std::get_if<std::optional<std::int64_t>*>(&field)) **to = static_cast<std::int64_t>(bits);
  if (auto* to = std::get_if<std::string*>(&field)) **to = text;
}

std::string quoted_hint(const YamlNode& node, bool would_load) {
  return would_load ? node.text + ", without quotes" : std::string{};
}

}  // namespace

void Loader::load_value(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                        FieldRef field) {
  if (row.later) {
    report(place, shown, std::string(kNotYet));
    return;
  }
  switch (row.kind) {
    case KeyKind::kInteger: return load_integer(row, shown, node, place, field);
    case KeyKind::kNumber: return load_number(row, shown, node, place, field);
    case KeyKind::kBool: return load_bool(row, shown, node, place, field);
    case KeyKind::kWord: return load_word(row, shown, node, place, field);
    case KeyKind::kText:
    case KeyKind::kByteSize: return load_text(row, shown, node, place, *std::get<std::string*>(field));
    case KeyKind::kNumbers:
    case KeyKind::kTexts:
    case KeyKind::kSources:
    case KeyKind::kGroups:
    case KeyKind::kFaults: return load_list(row, shown, node, place, field);
    case KeyKind::kSteps: return load_steps(row, shown, node, place, *std::get<std::optional<StepRange>*>(field));
    case KeyKind::kAnything: return;
  }
}

void Loader::load_integer(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                          FieldRef field) {
  if (has_word(row, node)) return assign_word(field, node.text);
  const bool scalar = node.kind == YamlNode::Kind::kScalar;
  const auto value = scalar ? parse_integer(node.text) : std::nullopt;
  const bool in_range = value && row.range.contains(value->approximate());
  if (!in_range || node.quoted) {
    std::string hint;
    if (scalar) hint = node.quoted ? quoted_hint(node, in_range) : value ? "" : integer_hint(node.text);
    if (scalar && hint.empty()) hint = nearest_word(node.text, row.words);
    return report_value(place, shown, node, row.expected(), std::move(hint));
  }
  if (row.only_now && value->approximate() != *row.only_now) {
    return report(place, shown, fmt::format("{} is {}", node.describe(), kNotYet), number_text(*row.only_now));
  }
  std::string text = node.text;
  if (text.starts_with('+')) text.erase(0, 1);
  assign_integer(field, *value, text);
}

void Loader::load_number(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                         FieldRef field) {
  const bool scalar = node.kind == YamlNode::Kind::kScalar;
  const auto value = scalar ? parse_number(node.text) : std::nullopt;
  const bool in_range = value && row.range.contains(*value);
  if (!in_range || node.quoted) {
    std::string hint;
    if (scalar) hint = node.quoted ? quoted_hint(node, in_range) : value ? "" : number_hint(node.text);
    return report_value(place, shown, node, row.expected(), std::move(hint));
  }
  if (row.only_now && *value != *row.only_now) {
    return report(place, shown, fmt::format("{} is {}", node.describe(), kNotYet), number_text(*row.only_now));
  }
  if (auto* to = std::get_if<double*>(&field)) **to = *value;
  if (auto* to = std::get_if<std::optional<double>*>(&field)) **to = *value;
}

void Loader::load_bool(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                       FieldRef field) {
  if (has_word(row, node)) return assign_word(field, node.text);
  const bool scalar = node.kind == YamlNode::Kind::kScalar;
  const auto value = scalar ? parse_bool(node.text) : std::nullopt;
  if (!value || node.quoted) {
    std::string hint;
    if (scalar) hint = node.quoted ? quoted_hint(node, value.has_value()) : bool_hint(node.text);
    return report_value(place, shown, node, row.expected(), std::move(hint));
  }
  if (auto* to = std::get_if<bool*>(&field)) **to = *value;
  if (auto* to = std::get_if<std::string*>(&field)) **to = *value ? "true" : "false";
}

void Loader::load_word(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                       FieldRef field) {
  if (!has_word(row, node)) {
    std::string hint;
    if (node.kind == YamlNode::Kind::kScalar) hint = nearest_word(node.text, row.words);
    return report_value(place, shown, node, row.expected(), std::move(hint));
  }
  const auto& now = row.words_now;
  if (!now.empty() && std::find(now.begin(), now.end(), node.text) == now.end()) {
    return report(place, shown, fmt::format("{} is {}", node.text, kNotYet), join_words(now));
  }
  assign_word(field, node.text);
}

void Loader::load_text(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                       std::string& field) {
  if (node.kind != YamlNode::Kind::kScalar || node.text.empty())
    return report_value(place, shown, node, row.expected());
  if (row.kind == KeyKind::kByteSize) {
    if (!parse_byte_size(node.text)) return report_value(place, shown, node, row.expected(), "8GiB");
    field = node.text;
    return;
  }
  if (!node.quoted && looks_like_another_type(node.text)) {
    return report_value(place, shown, node, row.expected(), fmt::format("\"{}\"", printable(node.text)));
  }
  if (node.text.find('\0') != std::string::npos) return report_value(place, shown, node, "text without NUL bytes");
  const std::string_view expected = row.accepts != nullptr ? row.accepts(node.text) : std::string_view{};
  if (!expected.empty()) return report_value(place, shown, node, std::string(expected));
  field = node.text;
}

void Loader::load_list(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                       FieldRef field) {
  if (node.kind != YamlNode::Kind::kList) {
    std::string hint;
    if (node.kind == YamlNode::Kind::kScalar && row.kind != KeyKind::kNumbers)
      hint = fmt::format("[{}]", node.describe());
    return report_value(place, shown, node, row.expected(), std::move(hint));
  }
  const auto item_path = [&](std::size_t i) { return fmt::format("{}[{}]", shown, i); };
  KeyRow item = row;
  if (auto* numbers = std::get_if<std::vector<double>*>(&field)) {
    item.kind = KeyKind::kNumber;
    if (node.items.size() != (*numbers)->size()) {
      return report(place, shown, fmt::format("found a list of {}, expected {}", node.items.size(), row.expected()));
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      load_number(item, item_path(i), node.items[i], place_of(node.items[i]), &(**numbers)[i]);
      if (spoiled_.count(item_path(i)) > 0) spoiled_.insert(shown);
    }
    return;
  }
  if (row.required() && node.items.empty())
    return report(place, shown, fmt::format("found an empty list, expected {}", row.expected()));
  item.kind = KeyKind::kText;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& each = node.items[i];
    const Place at = place_of(each);
    if (auto* texts = std::get_if<std::vector<std::string>*>(&field)) {
      load_text(item, item_path(i), each, at, (*texts)->emplace_back());
    } else if (auto* sources = std::get_if<std::vector<DataSource>*>(&field)) {
      DataSource& source = (*sources)->emplace_back();
      if (each.kind == YamlNode::Kind::kMapping) {
        load_mapping(each, "data.train[]", item_path(i), source);
        report_missing("data.train[]", item_path(i), at);
      } else {
        load_text(item, item_path(i), each, at, source.path);
      }
    } else if (auto* groups = std::get_if<std::vector<OptimizerGroup>*>(&field)) {
      load_group(each, item_path(i), at, (*groups)->emplace_back());
    } else if (auto* faults = std::get_if<std::vector<ChaosFault>*>(&field)) {
      load_fault(each, item_path(i), at, (*faults)->emplace_back());
    }
  }
}

void Loader::load_steps(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                        std::optional<StepRange>& field) {
  if (node.kind != YamlNode::Kind::kList) return report_value(place, shown, node, row.expected());
  if (node.items.size() != 2) {
    return report(place, shown, fmt::format("found a list of {}, expected {}", node.items.size(), row.expected()));
  }
  const std::size_t before = result_.problems.size();
  StepRange steps;
  KeyRow item = row;
  item.kind = KeyKind::kInteger;
  load_integer(item, shown + "[0]", node.items[0], place_of(node.items[0]), &steps.first);
  load_integer(item, shown + "[1]", node.items[1], place_of(node.items[1]), &steps.last);
  if (result_.problems.size() != before) return;
  if (steps.first > steps.last) {
    return report(place, shown, fmt::format("the first step, {}, is after the last, {}", steps.first, steps.last),
                  fmt::format("[{}, {}]", steps.last, steps.first));
  }
  field = steps;
}

void Loader::load_group(const YamlNode& node, const std::string& shown, const Place& place, OptimizerGroup& group) {
  if (node.kind != YamlNode::Kind::kMapping) {
    return report_value(place, shown, node, "{match, learning_rate, weight_decay, frozen}");
  }
  const std::size_t before = result_.problems.size();
  load_mapping(node, "optimizer.groups[]", shown, group);
  report_missing("optimizer.groups[]", shown, place);
  if (result_.problems.size() != before) return;
  if (const NamePattern pattern(group.match); !pattern.problem().empty()) {
    const std::string key = shown + ".match";
    report(places_.at(key), key,
           fmt::format("found {}, expected a regular expression ({})", printable(group.match), pattern.problem()));
  }
  if (!group.learning_rate && !group.weight_decay && !group.frozen)
    report(place, shown, "changes nothing, expected learning_rate, weight_decay or frozen: true");
}

void Loader::load_fault(const YamlNode& node, const std::string& shown, const Place& place, ChaosFault& fault) {
  if (node.kind != YamlNode::Kind::kMapping) {
    return report_value(place, shown, node, "{rank, step, fault, op, seconds}");
  }
  const std::size_t before = result_.problems.size();
  load_mapping(node, "chaos[]", shown, fault);
  report_missing("chaos[]", shown, place);
  if (result_.problems.size() != before) return;
  const FaultKind& kind = fault_kind(fault.fault);
  const auto at = [&](const std::string& key) { return places_.count(key) > 0 ? places_.at(key) : place; };
  const std::string op = shown + ".op", seconds = shown + ".seconds";
  if (!fault.op.empty() && kind.ops.size() < 2) {
    report(at(op), op, fmt::format("has no effect with fault {}", fault.fault));
  } else if (!fault.op.empty() && !takes_op(kind, fault.op)) {
    report(at(op), op, fmt::format("{} has no effect with fault {}", fault.op, fault.fault), join_words(kind.ops));
  }
  if (fault.seconds && kind.seconds == FaultKind::Seconds::kNone) {
    report(at(seconds), seconds, fmt::format("has no effect with fault {}", fault.fault));
  } else if (!fault.seconds && kind.seconds == FaultKind::Seconds::kRequired) {
    report(place, seconds, fmt::format("missing, fault {} needs it", fault.fault));
  }
}

}  // namespace tessera::config
