#include "runtime/config/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "runtime/config/relations.h"
#include "runtime/config/suggest.h"

namespace tessera::config {
namespace {

std::string dotted(std::string_view shown, std::string_view name) {
  return shown.empty() ? std::string(name) : fmt::format("{}.{}", shown, name);
}

}  // namespace

std::string hint_for_path(std::string_view path) {
  const std::size_t dot = path.find('.');
  const std::string_view section = dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
  const std::string_view name = dot == std::string_view::npos ? path : path.substr(dot + 1);
  if (section.empty() || is_section(section)) return hint_for_key(section, name).text;
  const std::string meant = hint_for_key("", section).path;
  if (find_row(dotted(meant, name)) != nullptr) return dotted(meant, name);
  return hint_for_key("", name).text;
}

void Loader::report(const Place& place, std::string_view key, std::string message, std::string hint) {
  spoiled_.emplace(key);
  if (result_.problems.size() >= kMaxProblems) {
    ++num_left_out_;
    return;
  }
  ConfigProblem problem;
  problem.file = place.from_override ? "--set" : file_;
  problem.line = place.line;
  problem.key = printable(key, 120);
  problem.message = std::move(message);
  problem.hint = std::move(hint);
  result_.problems.push_back(std::move(problem));
}

void Loader::report_value(const Place& place, std::string_view key, const YamlNode& found, const std::string& expected,
                          std::string hint) {
  report(place, key, fmt::format("found {}, expected {}", found.describe(), expected), std::move(hint));
}

void Loader::load(const YamlNode& root) {
  if (root.kind != YamlNode::Kind::kMapping) {
    report({root.kind == YamlNode::Kind::kNull ? 0 : root.line, false}, "",
           fmt::format("found {}, expected sections: run, model, data, batch, …", root.describe()));
    return;
  }
  std::unordered_map<std::string_view, int> seen;
  for (const YamlEntry& entry : root.entries) {
    const Place place{entry.line, entry.value.from_override};
    const auto [first, fresh] = seen.emplace(entry.key, entry.line);
    if (!fresh) {
      report(place, entry.key, fmt::format("duplicate key, first on line {}", first->second));
    } else if (const KeyRow* row = find_row(entry.key); row != nullptr && row->section().empty()) {
      places_.emplace(entry.key, place);
      FieldRef field;
      if (const auto* accessor = std::get_if<FieldRef (*)(JobConfig&)>(&row->field))
        field = (*accessor)(result_.config);
      load_value(*row, entry.key, entry.value, place, field);
    } else if (is_section(entry.key)) {
      load_section(entry);
    } else {
      report_unknown(place, "", "", entry.key);
    }
  }
  for (const Section& section : sections()) {
    if (seen.count(section.name) == 0 && spoiled_.count(section.name) == 0) {
      report_missing(section.name, std::string(section.name), {});
    }
  }
  check_applicable();
  check_relations();
  check_intervals();
  std::stable_sort(
      result_.problems.begin(), result_.problems.end(), [](const ConfigProblem& a, const ConfigProblem& b) {
        const auto order = [](const ConfigProblem& problem) {
          return std::pair(problem.file == "--set", problem.line == 0 ? std::numeric_limits<int>::max() : problem.line);
        };
        return order(a) < order(b);
      });
  if (num_left_out_ > 0) {
    result_.problems.push_back({file_, 0, "", fmt::format("{} more problems are not listed", num_left_out_), ""});
  }
}

void Loader::load_section(const YamlEntry& entry) {
  const Place place{entry.line, entry.value.from_override};
  if (entry.value.kind == YamlNode::Kind::kMapping) {
    places_.emplace(entry.key, place);
    load_mapping(entry.value, entry.key, entry.key, result_.config);
    report_missing(entry.key, entry.key, place);
    return;
  }
  report_value(place, entry.key, entry.value, "a mapping of its keys",
               entry.value.kind == YamlNode::Kind::kNull ? "remove it, or indent its keys below it" : "");
}

template <class Target>
void Loader::load_mapping(const YamlNode& mapping, std::string_view section, const std::string& shown, Target& target) {
  std::unordered_map<std::string_view, int> seen;
  for (const YamlEntry& entry : mapping.entries) {
    const std::string path = dotted(shown, entry.key);
    const Place place{entry.line, entry.value.from_override};
    const auto [first, fresh] = seen.emplace(entry.key, entry.line);
    const KeyRow* row = entry.key.find('.') == std::string::npos ? find_row(dotted(section, entry.key)) : nullptr;
    if (!fresh) {
      report(place, path, fmt::format("duplicate key, first on line {}", first->second));
    } else if (row == nullptr) {
      report_unknown(place, section, shown, entry.key);
    } else {
      places_.emplace(path, place);
      FieldRef field;
      if (const auto* accessor = std::get_if<FieldRef (*)(Target&)>(&row->field)) field = (*accessor)(target);
      load_value(*row, path, entry.value, place, field);
    }
  }
}

// Items of lists are loaded from loader_values.cpp.
template void Loader::load_mapping(const YamlNode&, std::string_view, const std::string&, DataSource&);
template void Loader::load_mapping(const YamlNode&, std::string_view, const std::string&, OptimizerGroup&);
template void Loader::load_mapping(const YamlNode&, std::string_view, const std::string&, ChaosFault&);

void Loader::report_unknown(const Place& place, std::string_view section, const std::string& shown,
                            const std::string& key) {
  const std::string path = dotted(shown, key);
  if (key == "<<") {
    report(place, path, "merge keys are not accepted: write the keys out");
    return;
  }
  if (result_.problems.size() >= kMaxProblems) {
    ++num_left_out_;  // the search for a hint costs more than reading the key
    return;
  }
  KeyHint hint = hint_for_key(section, key);
  if (hint.text.empty() && section.find('[') == std::string_view::npos) {
    hint.text = section.empty() ? "the sections are listed by `tessera config explain`"
                                : fmt::format("its keys are listed by `tessera config explain {}`", section);
  }
  if (!hint.path.empty()) spoiled_.insert(hint.path);
  report(place, path, "unknown key", hint.text);
}

void Loader::report_missing(std::string_view section, const std::string& shown, const Place& place) {
  for (const KeyRow& row : key_rows()) {
    if (row.section() != section || !row.required()) continue;
    const std::string path = dotted(shown, row.name());
    if (places_.count(path) > 0 || spoiled_.count(path) > 0) continue;
    report(place, path, fmt::format("missing, expected {}", row.expected()));
  }
}

void Loader::check_applicable() {
  JobConfig& job = result_.config;
  JobConfig defaults;
  for (const KeyRow& row : key_rows()) {
    const auto at = places_.find(row.path);
    if (row.applies == nullptr || at == places_.end() || row.applies(job) || spoiled_.count(row.decider) > 0) continue;
    const auto accessor = std::get<FieldRef (*)(JobConfig&)>(row.field);
    const auto decided = places_.find(row.decider);
    if (decided != places_.end() && decided->second.from_override && !at->second.from_override) {
      // --set switched the feature off; what the file says for it then has nothing to say.
      std::visit([&](auto* to) { *to = *std::get<decltype(to)>(accessor(defaults)); }, accessor(job));
      continue;
    }
    const auto of_decider = std::get<FieldRef (*)(JobConfig&)>(find_row(row.decider)->field);
    report(at->second, row.path,
           fmt::format("has no effect with {} {}", row.decider, *std::get<std::string*>(of_decider(job))),
           fmt::format("{}: {}", row.decider, row.needs));
  }
}

void Loader::check_relations() {
  for (Relation& broken : broken_relations(result_.config)) {
    const auto is_spoiled = [&](std::string_view key) {
      return spoiled_.count(key) > 0 || spoiled_.count(key.substr(0, key.find('.'))) > 0;
    };
    if (std::any_of(broken.keys.begin(), broken.keys.end(), is_spoiled)) continue;
    const std::string_view blamed = broken.keys.front();
    Place place;  // the blamed key's line or, where it is not set, that of the next key that is
    for (const std::string_view key : broken.keys) {
      const auto at = places_.find(key);
      if (at == places_.end()) continue;
      place = at->second;
      break;
    }
    report(place, blamed, std::move(broken.message), std::move(broken.hint));
  }
}

// What belongs to an evaluation, given to a job that never evaluates because nobody said when. An interval of 0 is somebody saying never: the rest
// may stay in the file.
void Loader::check_intervals() {
  constexpr std::string_view interval = "run.evaluate_every";
  if (places_.count(interval) > 0 || spoiled_.count(interval) > 0 || spoiled_.count("run") > 0) return;
  const auto refuse = [&](std::string_view key, bool is_default) {
    const auto at = places_.find(key);
    if (at == places_.end() || spoiled_.count(key) > 0 || is_default) return;
    report(at->second, key, "has no effect without run.evaluate_every", "run.evaluate_every: N, or 0 for never");
  };
  refuse("run.evaluate_batches", result_.config.run.evaluate_batches == 0);
  refuse("data.validation", result_.config.data.validation.empty());
}

}  // namespace tessera::config
