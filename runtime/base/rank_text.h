// Ranks as messages list them.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// "rank 1", "ranks 0, 2, 3", "ranks 0–2046, 2048"; at most six pieces.
std::string text_of_ranks(const std::vector<int>& ranks);

}  // namespace tessera
