// Ranks as an option takes them: "0,3", "0-3,7", "all".
#pragma once

#include <string>
#include <vector>

namespace tessera {

// Ascending, each once. ConfigError naming `option`, the text and what is wrong, also for a rank beyond the world.
std::vector<int> parse_rank_list(const std::string& option, const std::string& text, int num_ranks);

}  // namespace tessera
