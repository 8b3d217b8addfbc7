#include "runtime/train/text_stream.h"

#include <gtest/gtest.h>

#include <memory>

namespace tessera {
namespace {

const std::string kTokenizer = TESSERA_SOURCE_DIR "/tests/data/tokenizers/gpt2/tokenizer.json";

std::vector<std::string> stream(const Tokenizer& tokenizer, const std::vector<std::uint32_t>& tokens) {
  TextStream text(tokenizer, {});
  std::vector<std::string> parts;
  for (const std::uint32_t token : tokens) parts.push_back(text.push(token));
  parts.push_back(text.finish());
  return parts;
}

std::vector<std::uint32_t> bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()),
          reinterpret_cast<const std::uint8_t*>(text.data()) + text.size()};
}

using Parts = std::vector<std::string>;

TEST(TextStream, HoldsACharacterBackUntilItIsWhole) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(stream(*tokenizer, bytes("a\xc3\xa9z")), (Parts{"a", "", "\xc3\xa9", "z", ""}));
  EXPECT_EQ(stream(*tokenizer, bytes("\xf0\x9f\x98\x80")), (Parts{"", "", "", "\xf0\x9f\x98\x80", ""}));
}

TEST(TextStream, WhatIsNoCharacterIsReplacedOnceThatIsCertain) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(stream(*tokenizer, bytes("\xff")), (Parts{"\xef\xbf\xbd", ""}));  // begins no character
  // The z shows that the character before it never comes.
  EXPECT_EQ(stream(*tokenizer, bytes("\xc3z")), (Parts{"", "\xef\xbf\xbdz", ""}));
  EXPECT_EQ(stream(*tokenizer, bytes("a\xe6\x97")), (Parts{"a", "", "", "\xef\xbf\xbd\xef\xbf\xbd"}));
}

TEST(TextStream, PartsAreTheWholeText) {
  const auto tokenizer = load_tokenizer(kTokenizer);
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += i % 3 == 0 ? "\xe6\x97\xa5\xe6\x9c\xac " : i % 3 == 1 ? "token\n" : "\xf0\x9f\x91\xa9";
  std::string joined;
  for (const std::string& part : stream(*tokenizer, tokenizer->encode(text))) joined += part;
  EXPECT_EQ(joined, text);
}

TEST(TextStream, SpecialTokensAreNoText) {
  const auto tokenizer = load_tokenizer(kTokenizer);
  std::string joined;
  for (const std::string& part : stream(*tokenizer, tokenizer->encode("a<|endoftext|>b"))) joined += part;
  EXPECT_EQ(joined, "ab");
}

TEST(TextStream, TheContextIsNotRepeated) {
  const auto tokenizer = load_tokenizer("bytes");
  TextStream text(*tokenizer, bytes("before"));
  EXPECT_EQ(text.push('x'), "x");
  // A prompt that ends inside a character: its rest completes nothing of ours alone.
  TextStream cut(*tokenizer, bytes("\xc3"));
  EXPECT_EQ(cut.push('y'), "y");
}

}  // namespace
}  // namespace tessera
