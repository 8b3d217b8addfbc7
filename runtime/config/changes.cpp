#include "runtime/config/changes.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/config/load.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Values = std::map<std::string, std::string>;

std::string text_of(const Json& value) {
  if (value.is_null()) return "not set";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Sections hold keys and nothing deeper: a list is one value.
Values values_of(const JobConfig& config) {
  Values values;
  const Json json = Json::parse(to_json(config));
  for (const auto& [name, section] : json.items()) {
    if (!section.is_object()) {
      values[name] = text_of(section);
      continue;
    }
    for (const auto& [key, value] : section.items()) values[name + "." + key] = text_of(value);
  }
  return values;
}

const std::string& value_or_unset(const Values& values, const std::string& key) {
  static const std::string unset = "not set";
  const auto found = values.find(key);
  return found == values.end() ? unset : found->second;
}

}  // namespace

std::vector<KeyChange> changed_keys(const JobConfig& saved, const JobConfig& now) {
  const Values before = values_of(saved), after = values_of(now);
  Values keys = before;
  keys.insert(after.begin(), after.end());
  std::vector<KeyChange> changes;
  for (const auto& [key, ignored] : keys) {
    const std::string &old_value = value_or_unset(before, key), &new_value = value_or_unset(after, key);
    if (old_value != new_value) changes.push_back({key, old_value, new_value});
  }
  return changes;
}

bool may_change_on_resume(std::string_view key) {
  constexpr std::array sections = {"mesh.", "fsdp.", "device.", "collectives.", "trace.", "checkpoint."};
  constexpr std::array keys = {"chaos",
                               "optimizer.learning_rate",
                               "run.name",
                               "run.steps",
                               "run.epochs",
                               "run.log_every",
                               "run.hash_every",
                               "run.evaluate_every",
                               "run.evaluate_batches",
                               "run.sample_every"};
  if (key == "fsdp.reduce") return false;  // the order of sums
  return std::ranges::any_of(sections, [&](std::string_view section) { return key.starts_with(section); }) ||
         std::ranges::find(keys, key) != keys.end();
}

}  // namespace tessera
