// The tokens that a tokenizer.json adds to its vocabulary: found in the text before anything else is, as Hugging Face finds them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;
  bool special = false;      // marks a text's structure rather than being text
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // … and after it
  bool normalized = false;   // is looked for in the normalised text
  bool single_word = false;  // does not count inside of a word
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

// A part of a text: plain, or an added token.
struct TextPart {
  std::string_view text;
  std::optional<std::uint32_t> token;
  friend bool operator==(const TextPart&, const TextPart&) = default;
};

class AddedTokenSplitter {
 public:
  explicit AddedTokenSplitter(std::vector<AddedToken> tokens);
  AddedTokenSplitter(const AddedTokenSplitter&) = delete;
  AddedTokenSplitter& operator=(const AddedTokenSplitter&) = delete;

  // The parts of text in order; no plain part is empty. At each place the longest token counts, and the search goes on behind it. text may hold
  // bytes that are no UTF-8. Views are into text.
  std::vector<TextPart> split(std::string_view text) const;

 private:
  const AddedToken* find(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, std::size_t> by_content_;  // views into tokens_
  std::array<std::vector<std::size_t>, 256> lengths_;             // of the tokens that begin with a byte, descending
};

}  // namespace tessera
