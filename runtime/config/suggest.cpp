#include "runtime/config/suggest.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/key_table.h"

namespace tessera::config {
namespace {

std::string normalised(std::string_view key) {
  std::string out(key);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return out.substr(std::min(out.find_first_not_of('_'), out.size()));
}

std::string joined(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

KeyHint in_other_sections(std::string_view section, std::string_view key) {
  KeyHint hint;
  for (const bool later : {false, true}) {
    if (!hint.text.empty()) break;
    for (const KeyRow& row : key_rows()) {
      if (row.later != later || row.is_item() || row.name() != key || row.section() == section) continue;
      if (hint.path.empty()) hint.path = row.path;
      hint.text += (hint.text.empty() ? "" : " or ") + std::string(row.path);
    }
  }
  if (hint.text.empty() && !section.empty() && is_section(key)) {
    hint = {fmt::format("{} is a section of its own, at the left margin", key), std::string(key)};
  }
  return hint;
}

KeyHint of_other_frameworks(std::string_view key) {
  for (const KeyRow& row : key_rows()) {
    for (const ForeignName& foreign : row.foreign) {
      if (foreign.name == key)
        return {fmt::format("{} ({} in {})", row.path, key, foreign.where), std::string(row.path)};
    }
  }
  for (const Section& section : sections()) {
    for (const ForeignName& foreign : section.foreign) {
      if (foreign.name == key)
        return {fmt::format("{} ({} in {})", section.name, key, foreign.where), std::string(section.name)};
    }
  }
  return {};
}

KeyHint near_name_here(std::string_view section, std::string_view key) {
  std::vector<std::string_view> names;
  for (const KeyRow& row : key_rows()) {
    if (row.section() == section) names.push_back(row.name());
  }
  if (section.empty()) {
    for (const Section& each : sections()) names.push_back(each.name);
  }
  const std::string_view name = nearest_word(key, names);
  if (name.empty()) return {};
  return {std::string(name), joined(section, name)};
}

KeyHint near_name_anywhere(std::string_view key) {
  if (key.size() < 5) return {};  // a short word is near to many
  std::vector<std::string_view> names, paths;
  for (const KeyRow& row : key_rows()) {
    if (row.is_item()) continue;
    names.push_back(row.name());
    paths.push_back(row.path);
    for (const ForeignName& foreign : row.foreign) {
      names.push_back(foreign.name);
      paths.push_back(row.path);
    }
  }
  const std::string_view name = nearest_word(key, names);
  if (name.empty()) return {};
  const std::string path(paths[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin())]);
  return {path, path};
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& candidates) {
  if (word.size() > 64) return {};
  const std::size_t allowed = word.size() <= 3 ? 1 : word.size() < 8 ? 2 : 3;
  std::size_t best = allowed + 1;
  std::string_view nearest;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= best || distance >= candidate.size()) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

KeyHint hint_for_key(std::string_view section, std::string_view key) {
  const std::string word = normalised(key);
  if (word.empty()) return {};
  if (const std::size_t dot = word.find('.'); dot != std::string::npos) {
    if (!section.empty() || find_row(word) == nullptr) return {};
    return {fmt::format("{}: {{ {}: … }}", word.substr(0, dot), word.substr(dot + 1)), word};
  }
  if (find_row(joined(section, word)) != nullptr || (section.empty() && is_section(word)))
    return {word, joined(section, word)};
  KeyHint hint = in_other_sections(section, word);
  if (hint.text.empty()) hint = of_other_frameworks(word);
  if (hint.text.empty()) hint = near_name_here(section, word);
  if (hint.text.empty()) hint = near_name_anywhere(word);
  return hint;
}

}  // namespace tessera::config
