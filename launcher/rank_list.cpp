#include "launcher/rank_list.h"

#include <fmt/format.h>

#include <charconv>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "runtime/base/error.h"

namespace tessera {
namespace {

std::optional<int> parse_rank(std::string_view text) {
  int rank = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), rank);
  const bool whole = parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
  return whole && rank >= 0 ? std::optional(rank) : std::nullopt;
}

}  // namespace

std::vector<int> parse_rank_list(const std::string& option, const std::string& text, int num_ranks) {
  if (text == "all") {
    std::vector<int> ranks(static_cast<std::size_t>(num_ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  std::set<int> ranks;
  std::istringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    const auto dash = part.find('-');
    const auto first = parse_rank(std::string_view(part).substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_rank(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first > *last)
      throw ConfigError(
          fmt::format("launch: {} {}: found '{}', expected ranks as 0,3 or 0-3, or all", option, text, part));
    if (*last >= num_ranks)
      throw ConfigError(fmt::format("launch: {} {}: rank {} is not one of the {} rank{}", option, text, *last,
                                    num_ranks, num_ranks == 1 ? "" : "s"));
    for (int rank = *first; rank <= *last; ++rank) ranks.insert(rank);
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace tessera
