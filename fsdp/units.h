// Which parameters are gathered and reduced together.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/parameter_spec.h"

namespace tessera {

// wrap: "block": the root unit (embedding, final norm, head) and one unit per block; "root": one unit; "N": N blocks per unit.
// The root unit comes first; a tied matrix stands once in it. ConfigError for another word.
std::vector<UnitSpec> make_units(const ModelSpec& model, const std::string& wrap);

}  // namespace tessera
