#include "checkpoint/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

const std::string* find(const Fields& fields, const std::string& name) {
  const auto field = std::ranges::find(fields, name, &Fields::value_type::first);
  return field == fields.end() ? nullptr : &field->second;
}

}  // namespace

std::vector<std::string> differences(const Fields& saved, const Fields& now) {
  std::vector<std::string> found;
  for (const auto& [name, value] : saved) {
    const std::string* other = find(now, name);
    if (other == nullptr) {
      found.push_back(fmt::format("{}: {} saved, nothing now", name, value));
    } else if (*other != value) {
      found.push_back(fmt::format("{}: {} saved, {} now", name, value, *other));
    }
  }
  for (const auto& [name, value] : now)
    if (find(saved, name) == nullptr) found.push_back(fmt::format("{}: nothing saved, {} now", name, value));
  return found;
}

}  // namespace tessera
