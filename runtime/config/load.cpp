#include "runtime/config/load.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/config/loader.h"
#include "runtime/config/scalar.h"
#include "runtime/config/yaml_tree.h"

namespace tessera {
namespace {

using config::YamlEntry;
using config::YamlNode;

constexpr const char* kOverride = "--set";

std::string trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// Marks a tree as coming from --set, where lines mean nothing.
void mark_override(YamlNode& node) {
  node.line = 0;
  node.from_override = true;
  for (YamlNode& item : node.items) mark_override(item);
  for (YamlEntry& entry : node.entries) {
    entry.line = 0;
    mark_override(entry.value);
  }
}

// The value of a key of a mapping, made where it is missing. A key given twice stays twice in the tree, and is
// reported.
YamlNode& child(YamlNode& mapping, std::string_view key) {
  for (YamlEntry& entry : mapping.entries) {
    if (entry.key == key) return entry.value;
  }
  mapping.entries.push_back({std::string(key), 0, {}});
  return mapping.entries.back().value;
}

// Puts value at path into the tree, or says why not.
void apply_override(const std::string& override_text, YamlNode& root, std::vector<ConfigProblem>& problems) {
  const auto refuse = [&](std::string key, std::string message, std::string hint = {}) {
    problems.push_back({kOverride, 0, config::printable(key, 120), std::move(message), std::move(hint)});
  };
  const std::size_t equals = override_text.find('=');
  if (equals == std::string::npos) return refuse(override_text, "no =, expected key=value");
  const std::string key = trim(std::string_view(override_text).substr(0, equals));
  if (key.empty()) return refuse(override_text, "no key before =, expected key=value");
  if (config::is_section(key))
    return refuse(key, "a section, expected one of its keys", fmt::format("{}.KEY=value", key));
  const config::KeyRow* row = config::find_row(key);
  if (row == nullptr || row->is_item()) return refuse(key, "unknown key", config::hint_for_path(key));

  config::YamlDocument value = config::parse_yaml(std::string_view(override_text).substr(equals + 1));
  if (!value.errors.empty()) return refuse(key, value.errors.front().message);
  mark_override(value.root);
  if (root.kind == YamlNode::Kind::kNull) root.kind = YamlNode::Kind::kMapping;
  if (root.kind != YamlNode::Kind::kMapping) return;  // reported as the file's problem
  YamlNode* parent = &root;
  if (!row->section().empty()) {
    parent = &child(root, row->section());
    if (parent->kind == YamlNode::Kind::kNull) parent->kind = YamlNode::Kind::kMapping;
    if (parent->kind != YamlNode::Kind::kMapping) return;
  }
  YamlNode& node = child(*parent, row->name());
  node = std::move(value.root);
  for (YamlEntry& entry : parent->entries) {
    if (entry.key == row->name()) {
      entry.line = 0;
      break;
    }
  }
}

// The bytes of a job file, or what is wrong with it.
std::string read_file(const std::string& path, std::vector<ConfigProblem>& problems) {
  const auto refuse = [&](std::string message) {
    problems.push_back({path, 0, "", std::move(message), ""});
    return std::string();
  };
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (code || !std::filesystem::exists(status)) {
    return refuse(fmt::format("cannot be read: {}", code ? code.message() : std::strerror(ENOENT)));
  }
  if (std::filesystem::is_directory(status)) return refuse("a directory, expected a YAML file");
  if (!std::filesystem::is_regular_file(status)) return refuse("not a regular file, expected a YAML file");
  const auto size = std::filesystem::file_size(path, code);
  if (!code && size > config::kMaxYamlBytes) {
    return refuse(fmt::format("{} bytes, expected a job file of at most {}", size, config::kMaxYamlBytes));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return refuse("cannot be read to its end");
  if (text.empty()) return refuse("empty, expected a YAML file");
  return text;
}

}  // namespace

std::string ConfigProblem::line_text() const {
  std::string text = file;
  if (line > 0) text += fmt::format(":{}", line);
  text += ": ";
  if (!key.empty()) text += key + ": ";
  text += message;
  if (!hint.empty()) text += "; hint: " + hint;
  return text;
}

ConfigResult check_config_text(std::string_view yaml, const std::string& file_name,
                               const std::vector<std::string>& overrides) {
  ConfigResult result;
  result.config.source = file_name;
  const std::string stem = std::filesystem::path(file_name).stem().string();
  if (config::find_row("run.name")->accepts(stem).empty()) result.config.run.name = stem;
  config::YamlDocument document = config::parse_yaml(yaml);
  for (const config::YamlError& error : document.errors) {
    result.problems.push_back({file_name, error.line, "", error.message, ""});
  }
  std::vector<ConfigProblem> of_overrides;
  for (const std::string& each : overrides) apply_override(each, document.root, of_overrides);
  // A tree with syntax errors says nothing reliable about its keys.
  if (document.errors.empty()) config::Loader(file_name, result).load(document.root);
  result.problems.insert(result.problems.end(), of_overrides.begin(), of_overrides.end());
  return result;
}

ConfigResult check_config(const std::string& path, const std::vector<std::string>& overrides) {
  ConfigResult unreadable;
  const std::string text = read_file(path, unreadable.problems);
  if (!unreadable.problems.empty()) return unreadable;
  return check_config_text(text, path, overrides);
}

JobConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  ConfigResult result = check_config(path, overrides);
  if (result.problems.empty()) return std::move(result.config);
  std::string lines;
  for (const ConfigProblem& problem : result.problems) {
    if (!lines.empty()) lines += '\n';
    lines += problem.line_text();
  }
  throw ConfigError(std::move(lines));
}

std::int64_t memory_limit_bytes(const DeviceConfig& device) {
  if (device.memory_limit.empty()) return 0;
  const auto bytes = config::parse_byte_size(device.memory_limit);
  if (!bytes) throw ConfigError(fmt::format("device.memory_limit: found {}, expected bytes", device.memory_limit));
  return *bytes;
}

}  // namespace tessera
