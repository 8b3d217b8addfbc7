// What the regular expressions say, in cases that follow from them; tests/train/json_tokenizer_test.cpp compares with Hugging Face.
#include "runtime/train/word_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

using Words = std::vector<std::string>;

Words words(WordPattern pattern, std::string_view text) {
  Words result;
  while (!text.empty()) {
    const std::size_t length = first_word(pattern, text);
    result.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return result;
}

TEST(WordPattern, Gpt2KeepsOneSpaceWithTheWordBehindIt) {
  EXPECT_EQ(words(WordPattern::kGpt2, "a  bc 12x!? "), (Words{"a", " ", " bc", " 12", "x", "!?", " "}));
  EXPECT_EQ(words(WordPattern::kGpt2, "x\n\n y"), (Words{"x", "\n\n", " y"}));
  EXPECT_EQ(words(WordPattern::kGpt2, "x \t\ny"), (Words{"x", " \t", "\n", "y"}));
}

TEST(WordPattern, Llama3KeepsLineEndsTogetherAndCutsNumbersInThrees) {
  EXPECT_EQ(words(WordPattern::kLlama3, "x \n\n y 1234"), (Words{"x", " \n\n", " y", " ", "123", "4"}));
  EXPECT_EQ(words(WordPattern::kLlama3, "if(a)\r\n\tb;\n"), (Words{"if", "(a", ")\r\n", "\tb", ";\n"}));
  EXPECT_EQ(words(WordPattern::kQwen2, "1234"), (Words{"1", "2", "3", "4"}));
}

TEST(WordPattern, ContractionsAreWordsInSmallLettersOrInAny) {
  EXPECT_EQ(words(WordPattern::kGpt2, "he'll HE'LL"), (Words{"he", "'ll", " HE", "'", "LL"}));
  EXPECT_EQ(words(WordPattern::kLlama3, "he'll HE'Ll"), (Words{"he", "'ll", " HE", "'Ll"}));
  EXPECT_EQ(words(WordPattern::kLlama3, "'\xc5\xbf'x"), (Words{"'\xc5\xbf", "'x"}));  // the long s
}

// U+1C89 and U+2EBF0 are letters since Unicode 16 and 15.1, U+1CCF0 is a digit since 16; U+1C8F is nothing yet.
TEST(WordPattern, KnowsTheLettersOfUnicode16WhateverTheSystem) {
  EXPECT_EQ(words(WordPattern::kGpt2, "a\xe1\xb2\x89 b\xf0\xae\xaf\xb0"),
            (Words{"a\xe1\xb2\x89", " b\xf0\xae\xaf\xb0"}));
  EXPECT_EQ(words(WordPattern::kGpt2, "1\xf0\x9c\xb3\xb0"), (Words{"1\xf0\x9c\xb3\xb0"}));
  EXPECT_EQ(words(WordPattern::kGpt2, "a\xe1\xb2\x8f"), (Words{"a", "\xe1\xb2\x8f"}));
}

TEST(WordPattern, IsKnownByItsExpression) {
  for (const WordPattern pattern : {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2})
    EXPECT_EQ(find_word_pattern(regular_expression(pattern)), pattern);
  EXPECT_EQ(find_word_pattern("\\S+"), std::nullopt);
}

}  // namespace
}  // namespace tessera
