// The config written back, as YAML and as JSON. Both load again by the same rules to an equal JobConfig.
#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "runtime/config/key_table.h"
#include "runtime/config/load.h"
#include "runtime/config/scalar.h"

namespace tessera {
namespace {

using config::FieldRef;
using config::KeyKind;
using config::KeyRow;
using OrderedJson = nlohmann::ordered_json;

OrderedJson source_json(const DataSource& source) {
  if (source.weight == 1.0) return source.path;
  return OrderedJson{{"path", source.path}, {"weight", source.weight}};
}

OrderedJson group_json(const OptimizerGroup& group) {
  OrderedJson json{{"match", group.match}};
  if (group.learning_rate) json["learning_rate"] = *group.learning_rate;
  if (group.weight_decay) json["weight_decay"] = *group.weight_decay;
  if (group.frozen) json["frozen"] = true;
  return json;
}

OrderedJson fault_json(const ChaosFault& fault) {
  OrderedJson json{{"rank", fault.rank}, {"step", fault.step}, {"fault", fault.fault}};
  if (!fault.op.empty()) json["op"] = fault.op;
  if (fault.seconds) json["seconds"] = *fault.seconds;
  return json;
}

// A string field of a key that also takes numbers or booleans holds the text of either.
OrderedJson text_json(const KeyRow& row, const std::string& text) {
  if (row.kind == KeyKind::kInteger) {
    if (const auto number = config::parse_integer(text)) return number->magnitude;
  }
  if (row.kind == KeyKind::kBool) {
    if (const auto flag = config::parse_bool(text)) return *flag;
  }
  return text;
}

struct ToJson {
  const KeyRow& row;

  OrderedJson operator()(const std::int64_t* value) const { return *value; }
  OrderedJson operator()(const std::uint64_t* value) const { return *value; }
  OrderedJson operator()(const double* value) const { return *value; }
  OrderedJson operator()(const bool* value) const { return *value; }
  OrderedJson operator()(const std::string* value) const {
    return value->empty() ? OrderedJson() : text_json(row, *value);
  }
  OrderedJson operator()(const std::optional<std::int64_t>* value) const {
    if (*value) return **value;
    return row.words.empty() ? OrderedJson() : OrderedJson(row.words.front());
  }
  OrderedJson operator()(const std::optional<double>* value) const {
    return *value ? OrderedJson(**value) : OrderedJson();
  }
  OrderedJson operator()(const std::optional<StepRange>* steps) const {
    return *steps ? OrderedJson::array({(*steps)->first, (*steps)->last}) : OrderedJson();
  }
  OrderedJson operator()(const std::vector<double>* values) const { return *values; }
  OrderedJson operator()(const std::vector<std::string>* values) const {
    return values->empty() ? OrderedJson() : OrderedJson(*values);
  }
  OrderedJson operator()(const std::vector<DataSource>* values) const {
    OrderedJson list = OrderedJson::array();
    for (const DataSource& each : *values) list.push_back(source_json(each));
    return list;
  }
  OrderedJson operator()(const std::vector<OptimizerGroup>* values) const {
    if (values->empty()) return {};
    OrderedJson list = OrderedJson::array();
    for (const OptimizerGroup& each : *values) list.push_back(group_json(each));
    return list;
  }
  OrderedJson operator()(const std::vector<ChaosFault>* values) const {
    if (values->empty()) return {};
    OrderedJson list = OrderedJson::array();
    for (const ChaosFault& each : *values) list.push_back(fault_json(each));
    return list;
  }
};

// The value to write for a key; null where it is not set, has no effect, or has no value yet.
OrderedJson value_of(const KeyRow& row, JobConfig& job) {
  const auto* accessor = std::get_if<FieldRef (*)(JobConfig&)>(&row.field);
  if (accessor == nullptr || row.later) return {};
  if (row.applies != nullptr && !row.applies(job)) return {};
  return std::visit(ToJson{row}, (*accessor)(job));
}

// Plain where no reader can take it for anything else, else double-quoted with escapes.
std::string yaml_text(const std::string& text) {
  const auto plain_char = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  };
  bool plain = !text.empty() && text[0] != '-' && text[0] != '.' && !config::looks_like_another_type(text);
  for (const char c : text) plain = plain && plain_char(static_cast<unsigned char>(c));
  if (plain) return text;
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Flow style: [a, b], {path: a, weight: 2}.
std::string yaml_value(const OrderedJson& value) {
  if (value.is_string()) return yaml_text(value.get<std::string>());
  if (value.is_number_float()) return config::number_text(value.get<double>());
  std::string out;
  if (value.is_array()) {
    for (const OrderedJson& item : value) out += (out.empty() ? "" : ", ") + yaml_value(item);
    return '[' + out + ']';
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", key, yaml_value(item));
    return '{' + out + '}';
  }
  return value.dump();
}

}  // namespace

std::string to_yaml(const JobConfig& config) {
  JobConfig job = config;
  std::string out, section;
  for (const KeyRow& row : config::key_rows()) {
    if (row.is_item()) continue;
    const OrderedJson value = value_of(row, job);
    std::string line;
    if (!value.is_null()) {
      line = fmt::format("{}: {}\n", row.name(), yaml_value(value));
    } else if (row.fallback != nullptr && (row.applies == nullptr || row.applies(job))) {
      // What an unset key amounts to is said, but only as a comment: set and unset are different configs when another
      // key changes.
      if (const auto amount = row.fallback(job))
        line = fmt::format("# {}: {} (not set: {})\n", row.name(), *amount, row.unset);
    }
    if (line.empty()) continue;
    if (row.section() != section) {
      section = row.section();
      if (!section.empty()) out += section + ":\n";
    }
    out += (section.empty() ? "" : "  ") + line;
  }
  return out;
}

std::string to_json(const JobConfig& config) {
  JobConfig job = config;
  OrderedJson out = OrderedJson::object();
  for (const KeyRow& row : config::key_rows()) {
    if (row.is_item()) continue;
    OrderedJson value = value_of(row, job);
    if (value.is_null()) continue;
    if (row.section().empty()) {
      out[std::string(row.name())] = std::move(value);
    } else {
      out[std::string(row.section())][std::string(row.name())] = std::move(value);
    }
  }
  return out.dump(2);
}

}  // namespace tessera
