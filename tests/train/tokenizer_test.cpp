#include "runtime/train/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "tests/support/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

// English of no particular meaning, made of a fixed list of words by a fixed rule: enough for a few hundred merges.
std::string some_text() {
  const std::vector<std::string> words = {"the", "token",  "of",    "a",     "model", "reads", "text",
                                          "and", "writes", "lines", "under", "every", "quiet", "machine"};
  std::string text;
  std::uint32_t state = 1;
  for (int i = 0; i < 4000; ++i) {
    state = state * 1664525U + 1013904223U;
    text += words[(state >> 16) % words.size()];
    text += i % 11 == 10 ? ".\n" : i % 57 == 56 ? "\n\n    " : " ";
  }
  return text;
}

class SentencePieceBpe : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (fs::temp_directory_path() / "tessera-tokenizer-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory = new fs::path(pattern);
    std::ofstream(path("text.txt"), std::ios::binary) << some_text();
    train_sentencepiece_bpe({path("text.txt")}, 350, path("a.model"));
  }
  static void TearDownTestSuite() {
    fs::remove_all(*directory);
    delete directory;
  }
  static std::string path(const std::string& name) { return (*directory / name).string(); }
  static std::string bytes_of(const std::string& name) {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static fs::path* directory;
};
fs::path* SentencePieceBpe::directory = nullptr;

const std::vector<std::string>& adversarial_texts() {
  static const std::vector<std::string> texts = {
      ""s,
      " "s,
      "  leading and trailing  "s,
      "tabs\tand\r\nlines\n\n\n   indented\n"s,
      "\0 NUL \0\0"s,
      "\xff\xfe\x80 not UTF-8 \xc3"s,
      "\xe2\x96\x81 the space mark \xe2\x96\x81\xe2\x96\x81"s,
      "\xe2\x81\x87 the unknown mark"s,
      "<unk> <s> </s> <0x41> [PAD]"s,
      "\xef\xbb\xbf"
      "byte order mark"s,
      "\xef\xbc\xa1\xef\xac\x81 fullwidth, ligature, e\xcc\x81 and \xc3\xa9"s,
      "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x98\x80 \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d"s,
      "\xed\xa0\x80 a lone surrogate, \xc0\xaf overlong, \xf4\x90\x80\x80 too large"s,
      "\xf0\x9f\x98 cut off \xe2\x96"s,
  };
  return texts;
}

TEST(ByteTokenizer, RoundTripsAnyBytes) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->encode("\xff"
                              "A"),
            (std::vector<std::uint32_t>{255, 65}));
  for (const std::string& text : adversarial_texts()) EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_THROW(tokenizer->decode(std::vector<std::uint32_t>{256}), DataError);
}

TEST_F(SentencePieceBpe, RoundTripsAnyBytes) {
  const auto tokenizer = load_tokenizer(path("a.model"));
  EXPECT_TRUE(tokenizer->is_exact());
  EXPECT_EQ(tokenizer->vocab_size(), 350);
  for (const std::string& text : adversarial_texts()) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("the " + text + " model")), "the " + text + " model");
  }
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte.push_back(static_cast<char>(i));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(every_byte)), every_byte);
}

TEST_F(SentencePieceBpe, TextOfTheTrainingKindTakesFewTokens) {
  const auto tokenizer = load_tokenizer(path("a.model"));
  const std::string text = some_text();
  const std::size_t tokens = tokenizer->encode(text).size();
  // 4000 words, each learnt as one piece with its space; the rest is punctuation and line ends.
  EXPECT_LT(tokens, 6000U);
  EXPECT_GE(tokens, 4000U);
}

TEST_F(SentencePieceBpe, ATextsTokensDoNotDependOnWhereItIsCutBeforeASpace) {
  const auto tokenizer = load_tokenizer(path("a.model"));
  const std::string text = some_text();
  const std::size_t cut = text.find(" machine", text.size() / 2);
  std::vector<std::uint32_t> parts = tokenizer->encode(text.substr(0, cut));
  const std::vector<std::uint32_t> second = tokenizer->encode(text.substr(cut));
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(tokenizer->encode(text), parts);
}

TEST_F(SentencePieceBpe, TrainingIsDeterministic) {
  train_sentencepiece_bpe({path("text.txt")}, 350, path("b.model"));
  EXPECT_EQ(bytes_of("a.model"), bytes_of("b.model"));
  // A stream of the same text is the same text.
  bool given = false;
  train_sentencepiece_bpe(
      [&](std::string& text) {
        text = some_text();
        return !std::exchange(given, true);
      },
      350, path("c.model"));
  EXPECT_EQ(bytes_of("a.model"), bytes_of("c.model"));
}

TEST_F(SentencePieceBpe, TheEndOfTextIsATokenButNoText) {
  const auto tokenizer = load_tokenizer(path("a.model"));
  ASSERT_TRUE(tokenizer->end_of_text().has_value());
  std::vector<std::uint32_t> tokens = tokenizer->encode("the model");
  tokens.push_back(*tokenizer->end_of_text());
  EXPECT_EQ(tokenizer->decode(tokens), "the model");
  EXPECT_THROW(tokenizer->decode(std::vector<std::uint32_t>{350}), DataError);
}

// Llama 2: its folder says what its model leaves open.
TEST_F(SentencePieceBpe, TheFilesBesideItSayHowATextBegins) {
  fs::create_directory(path("beside"));
  fs::copy_file(path("a.model"), path("beside/tokenizer.model"));
  EXPECT_EQ(load_tokenizer(path("beside/tokenizer.model"))->text_prefix(), (std::vector<std::uint32_t>{}));
  std::ofstream(path("beside/tokenizer_config.json")) << R"({"add_bos_token": true, "eos_token": "</s>"})";
  std::ofstream(path("beside/generation_config.json")) << R"({"eos_token_id": [2, 7, -1]})";
  const auto tokenizer = load_tokenizer(path("beside/tokenizer.model"));
  EXPECT_EQ(tokenizer->text_prefix(), (std::vector<std::uint32_t>{1})) << "<s>, after <unk>";
  EXPECT_EQ(tokenizer->stop_tokens(), (std::vector<std::uint32_t>{2, 7})) << "</s>, and one more";
  EXPECT_EQ(tokenizer->files(),
            (std::vector<std::string>{path("beside/tokenizer.model"), path("beside/tokenizer_config.json"),
                                      path("beside/generation_config.json")}));
  std::ofstream(path("beside/tokenizer_config.json")) << R"({"add_bos_token": false})";
  EXPECT_EQ(load_tokenizer(path("beside/tokenizer.model"))->text_prefix(), (std::vector<std::uint32_t>{}));
}

TEST_F(SentencePieceBpe, AVocabularyThatTheTextCannotFillIsRefused) {
  EXPECT_NE(test::message_of<Error>([&] {
              train_sentencepiece_bpe({path("text.txt")}, 50000, path("x.model"));
            }).find("50000"),
            std::string::npos);
  EXPECT_NE(test::message_of<Error>([&] {
              train_sentencepiece_bpe({path("text.txt")}, 100, path("x.model"));
            }).find("expected 260"),
            std::string::npos);
  EXPECT_NE(
      test::message_of<Error>([&] { train_sentencepiece_bpe({path("text.txt")}, 262, path("x.model")); }).find("262"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(path("x.model")));
}

TEST_F(SentencePieceBpe, WhatIsNoModelIsRefusedByName) {
  const auto message = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return test::message_of<Error>([&] { load_tokenizer(path(name)); });
  };
  EXPECT_EQ(message("empty.model", ""), path("empty.model") + ": is not a SentencePiece model");
  EXPECT_EQ(message("text.model", "hello"), path("text.model") + ": is not a SentencePiece model");
  EXPECT_EQ(message("gzip.model", "\x1f\x8b\x08"), path("gzip.model") + ": is not a SentencePiece model but gzip");
  EXPECT_EQ(message("half.model", bytes_of("a.model").substr(0, 2001)),
            path("half.model") + ": is not a SentencePiece model, or is cut short");
  EXPECT_NE(test::message_of<Error>([&] { load_tokenizer(path("absent.model")); }).find("no such tokenizer"),
            std::string::npos);
  EXPECT_NE(test::message_of<Error>([&] { load_tokenizer(directory->string()); }).find("not a file"),
            std::string::npos);
  EXPECT_NE(test::message_of<Error>([] { load_tokenizer("tokenizer.json"); }).find("no such tokenizer"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
