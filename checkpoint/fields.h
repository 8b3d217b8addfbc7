// Facts as text, in an order that means nothing: what a model's parameters mean, what decides bits. Kept so that a difference can be named.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera {

using Fields = std::vector<std::pair<std::string, std::string>>;  // names are distinct

// One text for each name whose value differs or that one side lacks, in the order of `saved`, then of `now`:
// "activation: gelu saved, relu now", "bias: true saved, nothing now".
std::vector<std::string> differences(const Fields& saved, const Fields& now);

}  // namespace tessera
