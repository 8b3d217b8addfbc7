// Text that comes token by token: what can be read so far, never half a character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/train/tokenizer.h"

namespace tessera {

class TextStream {
 public:
  // context: the tokens before, whose text is not repeated: some tokenizers write a token otherwise at the beginning of a text. tokenizer outlives
  // the object.
  TextStream(const Tokenizer& tokenizer, std::vector<std::uint32_t> context);

  // The text that is complete with this token and was not before; special tokens have none. Well-formed UTF-8: bytes that are none are U+FFFD.
  std::string push(std::uint32_t token);
  // What is left at the end.
  std::string finish();

 private:
  std::string take(const std::string& text, std::size_t end);

  const Tokenizer& tokenizer_;
  std::vector<std::uint32_t> tokens_;
  std::size_t taken_ = 0;  // bytes of their text
};

// The end of the text's last complete character.
std::size_t complete_characters(std::string_view text);
// The text with U+FFFD for each byte that is no UTF-8.
std::string well_formed(std::string_view text);

}  // namespace tessera
