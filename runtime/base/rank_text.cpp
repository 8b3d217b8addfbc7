#include "runtime/base/rank_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tessera {

std::string text_of_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t max_pieces = 6;
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (end - i >= 3) {
      pieces.push_back(fmt::format("{}–{}", sorted[i], sorted[end - 1]));
      i = end;
    } else {
      pieces.push_back(fmt::format("{}", sorted[i++]));
    }
  }
  std::string text = sorted.size() == 1 ? "rank " : "ranks ";
  const bool cut_short = pieces.size() > max_pieces;
  if (cut_short) pieces.resize(max_pieces - 1);
  text += fmt::format("{}", fmt::join(pieces, ", "));
  return cut_short ? fmt::format("{}, … ({} ranks)", text, sorted.size()) : text;
}

}  // namespace tessera
