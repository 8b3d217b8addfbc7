#include "runtime/train/optimizer_groups.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/config/name_pattern.h"

namespace tessera {

std::vector<int> match_groups(const std::vector<OptimizerGroup>& groups, const std::vector<ParameterSpec>& parameters) {
  std::vector<int> group_of(parameters.size(), -1);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const config::NamePattern pattern(groups[g].match);
    if (!pattern.problem().empty()) {
      throw ConfigError(fmt::format("optimizer.groups[{}].match: found {}, expected a regular expression ({})", g,
                                    groups[g].match, pattern.problem()));
    }
    bool used = false;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!pattern.matches(parameters[p].name)) continue;
      group_of[p] = static_cast<int>(g);
      used = true;
    }
    if (!used) {
      throw ConfigError(fmt::format("optimizer.groups[{}].match: {} matches no parameter", g, groups[g].match),
                        "tessera plan --json lists the parameters' names");
    }
  }
  return group_of;
}

}  // namespace tessera
