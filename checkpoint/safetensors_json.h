// The JSON of a safetensors header, element by element: no tree of it is ever built, and no depth beyond the format's is entered.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/safetensors.h"

namespace tessera {

// Fills metadata and tensors, in the order of the text. Returns the rule that is broken, "" where none is. What offsets and shapes mean
// together is not looked at.
std::string parse_safetensors_json(std::string_view text, SafetensorsHeader& header);

}  // namespace tessera
