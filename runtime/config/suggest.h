// What the writer of an unknown key or word may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

// Edits (insert, delete, replace, swap of neighbours) between two words: the optimal string alignment form of
// Damerau-Levenshtein.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of the candidates, the first where several are as near; "" where none is near enough to be meant.
std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& candidates);

struct KeyHint {
  std::string text;  // for the message; "" where there is nothing to say
  std::string path;  // the key it points to, or ""
};

// For a key that `section` does not have ("" is the root, "data.train[]" the items of a list). In this order: the same
// name spelled with other case or hyphens, the right key of another section, another framework's name, a near name
// here, a near name anywhere.
KeyHint hint_for_key(std::string_view section, std::string_view key);

}  // namespace tessera::config
