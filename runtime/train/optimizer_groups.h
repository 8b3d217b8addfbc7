// Which parameters a group of the optimizer's config takes.
#pragma once

#include <vector>

#include "runtime/config/job_config.h"
#include "runtime/program/parameter_spec.h"

namespace tessera {

// For each parameter the index of the last group whose `match` is found in its name, -1 where none is. ConfigError for a match that is no regular
// expression or fits no parameter.
std::vector<int> match_groups(const std::vector<OptimizerGroup>& groups, const std::vector<ParameterSpec>& parameters);

}  // namespace tessera
