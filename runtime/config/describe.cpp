// `config explain`, the list of keys and the JSON Schema, read off the key table.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/config/key_table.h"
#include "runtime/config/load.h"
#include "runtime/config/loader.h"

namespace tessera {
namespace {

using config::KeyKind;
using config::KeyRow;
using OrderedJson = nlohmann::ordered_json;

std::string describe_row(const KeyRow& row) {
  std::string out = fmt::format("{}\n  {}\n", row.path, row.meaning);
  if (row.later) {
    out += "  status    not available yet\n";
  } else {
    out += fmt::format("  value     {}\n", row.expected());
    out += fmt::format("  default   {}\n", row.default_text());
    if (!row.unit.empty()) out += fmt::format("  unit      {}\n", row.unit);
    if (!row.words_now.empty())
      out += fmt::format("  now       {}; the others are not available yet\n", config::join_words(row.words_now));
    if (row.only_now) out += fmt::format("  now       {}; other values are not available yet\n", *row.only_now);
    if (!row.needs.empty()) out += fmt::format("  needs     {}: {}\n", row.decider, row.needs);
  }
  std::string elsewhere;
  for (const config::ForeignName& foreign : row.foreign) {
    elsewhere += fmt::format("{}{} ({})", elsewhere.empty() ? "" : ", ", foreign.name, foreign.where);
  }
  if (!elsewhere.empty()) out += fmt::format("  elsewhere {}\n", elsewhere);
  std::string items;
  for (const KeyRow& each : config::key_rows()) {
    if (each.section() == fmt::format("{}[]", row.path))
      items += fmt::format("{}{}", items.empty() ? "" : ", ", each.path);
  }
  if (!items.empty()) out += fmt::format("  items     {}\n", items);
  return out;
}

std::string describe_section(const config::Section& section) {
  std::string out = fmt::format("{}\n  {}\n", section.name, section.meaning);
  for (const KeyRow& row : config::key_rows()) {
    const bool of_section =
        row.section() == section.name || (row.is_item() && row.path.starts_with(fmt::format("{}.", section.name)));
    if (of_section) out += fmt::format("  {:<40} {}\n", row.path, row.later ? "not available yet" : row.default_text());
  }
  return out;
}

bool has_foreign_name(const KeyRow& row, std::string_view name) {
  for (const config::ForeignName& foreign : row.foreign) {
    if (foreign.name == name) return true;
  }
  return false;
}

// Built member by member: nested braces of two strings would be taken for a pair of iterators.
OrderedJson object(std::initializer_list<std::pair<const char*, OrderedJson>> members) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, value] : members) json[name] = value;
  return json;
}

OrderedJson number_schema(const KeyRow& row, const char* type) {
  OrderedJson json = object({{"type", type}});
  const config::Range& range = row.range;
  if (row.only_now) return object({{"const", *row.only_now}});
  const auto bound = [&](const char* name, double value) {
    if (row.kind == KeyKind::kInteger && value < 0x1p53) {
      json[name] = static_cast<std::int64_t>(value);
    } else if (row.kind == KeyKind::kInteger) {
      json[name] = std::numeric_limits<std::uint64_t>::max();
    } else {
      json[name] = value;
    }
  };
  bound(range.above_min ? "exclusiveMinimum" : "minimum", range.min);
  bound(range.below_max ? "exclusiveMaximum" : "maximum", range.max);
  return json;
}

OrderedJson item_schema(std::string_view section);

OrderedJson any_of(OrderedJson first, OrderedJson second) {
  OrderedJson list = OrderedJson::array();
  list.push_back(std::move(first));
  list.push_back(std::move(second));
  return object({{"anyOf", std::move(list)}});
}

OrderedJson list_of(OrderedJson items, std::int64_t at_least = 0) {
  OrderedJson json = object({{"type", "array"}, {"items", std::move(items)}});
  if (at_least > 0) json["minItems"] = at_least;
  return json;
}

OrderedJson pair_of(OrderedJson items) {
  OrderedJson json = list_of(std::move(items), 2);
  json["maxItems"] = 2;
  return json;
}

OrderedJson text_schema() {
  return object({{"type", "string"}, {"minLength", 1}});
}

OrderedJson value_schema(const KeyRow& row) {
  if (row.later) return object({{"not", OrderedJson::object()}});
  OrderedJson json;
  switch (row.kind) {
    case KeyKind::kInteger: json = number_schema(row, "integer"); break;
    case KeyKind::kNumber: json = number_schema(row, "number"); break;
    case KeyKind::kBool: json = object({{"type", "boolean"}}); break;
    case KeyKind::kWord: return object({{"enum", row.words_now.empty() ? row.words : row.words_now}});
    case KeyKind::kText: return text_schema();
    case KeyKind::kByteSize:
      return any_of(object({{"type", "integer"}, {"minimum", 1}}),
                    object({{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)?( ?(KiB|MiB|GiB|TiB))?$"}}));
    case KeyKind::kNumbers: return pair_of(number_schema(row, "number"));
    case KeyKind::kTexts: return list_of(text_schema());
    case KeyKind::kSources: return list_of(any_of(text_schema(), item_schema("data.train[]")), 1);
    case KeyKind::kGroups: return list_of(item_schema("optimizer.groups[]"));
    case KeyKind::kFaults: return list_of(item_schema("chaos[]"));
    case KeyKind::kSteps: return pair_of(number_schema(row, "integer"));
    case KeyKind::kAnything: return OrderedJson::object();
  }
  if (row.words.empty()) return json;
  return any_of(object({{"enum", row.words}}), std::move(json));
}

OrderedJson row_schema(const KeyRow& row) {
  std::string description(row.meaning);
  if (row.later) description += " Not available yet.";
  if (!row.unit.empty()) description += fmt::format(" Unit: {}.", row.unit);
  if (!row.later && !row.required()) description += fmt::format(" Default: {}.", row.default_text());
  OrderedJson json = object({{"description", description}});
  json.update(value_schema(row));
  return json;
}

// A closed object of the keys of a section.
OrderedJson item_schema(std::string_view section) {
  OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
  for (const KeyRow& row : config::key_rows()) {
    if (row.section() != section) continue;
    properties[std::string(row.name())] = row_schema(row);
    if (row.required()) required.push_back(row.name());
  }
  OrderedJson json =
      object({{"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}});
  if (!required.empty()) json["required"] = std::move(required);
  return json;
}

}  // namespace

std::string explain_key(std::string_view key) {
  if (const KeyRow* row = config::find_row(key)) return describe_row(*row);
  for (const config::Section& section : config::sections()) {
    if (section.name == key) return describe_section(section);
  }
  std::string out;
  if (key.empty()) {
    for (const config::Section& section : config::sections())
      out += fmt::format("{:<16} {}\n", section.name, section.meaning);
    for (const KeyRow& row : config::key_rows()) {
      if (row.section().empty()) out += fmt::format("{:<16} {}\n", row.path, row.meaning);
    }
    return out;
  }
  // The last part of a path, or another framework's name: every key that it may mean.
  for (const KeyRow& row : config::key_rows()) {
    if ((!row.is_item() && row.name() == key) || has_foreign_name(row, key)) {
      if (!out.empty()) out += '\n';
      out += describe_row(row);
    }
  }
  if (out.empty()) throw ConfigError(fmt::format("{}: unknown key", key), config::hint_for_path(key));
  return out;
}

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (const KeyRow& row : config::key_rows()) keys.emplace_back(row.path);
  return keys;
}

std::string json_schema() {
  OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
  for (const config::Section& section : config::sections()) {
    OrderedJson json = object({{"description", section.meaning}});
    json.update(item_schema(section.name));
    if (json.contains("required")) required.push_back(section.name);
    properties[std::string(section.name)] = std::move(json);
  }
  required.push_back("run");
  OrderedJson need_steps = object({{"required", OrderedJson::array({"steps"})}}),
              need_epochs = object({{"required", OrderedJson::array({"epochs"})}});
  properties["run"].update(any_of(std::move(need_steps), std::move(need_epochs)));
  for (const KeyRow& row : config::key_rows()) {
    if (row.section().empty()) properties[std::string(row.name())] = row_schema(row);
  }
  return object({{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "Tessera job"},
                 {"type", "object"},
                 {"additionalProperties", false},
                 {"required", std::move(required)},
                 {"properties", std::move(properties)}})
      .dump(2);
}

}  // namespace tessera
