// tokenizer.json against the ids of Hugging Face's own library (tests/data/tokenizers, made by tools/make_tokenizer_reference.py), and what is refused.
#include "runtime/train/json_tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::uint32_t>;

const std::string kFolder = TESSERA_SOURCE_DIR "/tests/data/tokenizers/";

json read_json(const std::string& name) {
  return json::parse(std::ifstream(kFolder + name));
}

json file_of(const std::string& style) {
  return read_json(style + "/tokenizer.json");
}

std::unique_ptr<Tokenizer> tokenizer_of(const json& file, const TokenizerCompanions& companions = {}) {
  return make_json_tokenizer(parse_tokenizer_file(file.dump(), "t.json"), companions, "t.json");
}

std::string escaped(const std::string& text) {
  return json(text).dump(-1, ' ', true);
}

// The copy of a style that a variant of the reference names.
json variant_file(const json& variant) {
  return file_of(variant["of"]).patch(variant["patch"]);
}

TEST(JsonTokenizer, GivesTheIdsOfHuggingFace) {
  const json reference = read_json("reference.json");
  ASSERT_EQ(reference["variants"].size(), 5U);
  for (const auto& [name, variant] : reference["variants"].items()) {
    const auto tokenizer = tokenizer_of(variant_file(variant));
    std::size_t num_tokens = 0;
    for (std::size_t i = 0; i < reference["texts"].size(); ++i) {
      const auto text = reference["texts"][i].get<std::string>();
      const auto expected = variant["ids"][i].get<Tokens>();
      EXPECT_EQ(tokenizer->encode(text), expected) << name << ": " << escaped(text);
      EXPECT_EQ(tokenizer->encode(text), expected) << name << ", from the cache: " << escaped(text);
      num_tokens += expected.size();
    }
    EXPECT_GT(num_tokens, 6000U) << name;
    Tokens whole = tokenizer->text_prefix();
    for (const std::uint32_t token : tokenizer->encode("Hi")) whole.push_back(token);
    EXPECT_EQ(whole, variant["with_special_tokens"].get<Tokens>()) << name;
  }
}

TEST(JsonTokenizer, GivesEveryTextBackWhereItIsExact) {
  const json reference = read_json("reference.json");
  const auto gpt2 = tokenizer_of(file_of("gpt2"));
  ASSERT_TRUE(gpt2->is_exact());
  for (const json& text : reference["texts"]) EXPECT_EQ(gpt2->decode(gpt2->encode(text.get<std::string>())), text);
  // Tokens that take white space along, an added space, a normalisation: not exact.
  EXPECT_FALSE(tokenizer_of(file_of("llama3"))->is_exact());
  for (const char* name : {"gpt2_prefix_space", "qwen2"}) {
    EXPECT_FALSE(tokenizer_of(variant_file(reference["variants"][name]))->is_exact()) << name;
  }
}

TEST(JsonTokenizer, BytesThatAreNoUtf8AreATokenEach) {
  const auto tokenizer = tokenizer_of(file_of("gpt2"));
  // A cut character, a surrogate, an overlong slash, a byte that never occurs, and a value above U+10FFFF.
  for (const std::string& bad : {std::string("\xe6\x97"), std::string("\xed\xa0\x80"), std::string("\xc0\xaf"),
                                 std::string("\xff"), std::string("\xf4\x90\x80\x80")}) {
    Tokens expected = tokenizer->encode("the end ");
    for (const char byte : bad) {
      const Tokens one = tokenizer->encode(std::string(1, byte));
      ASSERT_EQ(one.size(), 1U);
      expected.push_back(one[0]);
    }
    for (const std::uint32_t token : tokenizer->encode(" of text")) expected.push_back(token);
    const std::string text = "the end " + bad + " of text";
    EXPECT_EQ(tokenizer->encode(text), expected);
    EXPECT_EQ(tokenizer->decode(expected), text);
  }
}

TEST(JsonTokenizer, EveryByteHasATokenOfItsOwn) {
  const auto tokenizer = tokenizer_of(file_of("llama3"));
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const Tokens tokens = tokenizer->encode(text);
    ASSERT_EQ(tokens.size(), 1U) << byte;
    EXPECT_EQ(tokenizer->decode(tokens), text) << byte;
  }
}

TEST(JsonTokenizer, SpecialTokensAreSpelledOutAndTold) {
  const auto tokenizer = load_tokenizer(kFolder + "gpt2/tokenizer.json");
  const Tokens tokens = tokenizer->encode("a<|endoftext|>b");
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokenizer->decode(tokens), "a<|endoftext|>b");
  EXPECT_FALSE(tokenizer->is_special(tokens[0]));
  EXPECT_TRUE(tokenizer->is_special(tokens[1]));
  EXPECT_EQ(tokenizer->end_of_text(), tokens[1]);
}

// An added token is its text, also where its characters are those that stand for other bytes.
TEST(JsonTokenizer, AddedTokensAreNotReadAsBytes) {
  const auto tokenizer = tokenizer_of(file_of("llama3"));
  const Tokens tokens = tokenizer->encode("CAF\xc3\x89");
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(tokenizer->decode(tokens), "CAF\xc3\x89");
}

TEST(JsonTokenizer, TheFilesBesideItSayWhereATextEnds) {
  const auto tokenizer = load_tokenizer(kFolder + "llama3/tokenizer.json");
  const std::uint32_t end = tokenizer->encode("<|end_of_text|>").at(0), turn = tokenizer->encode("<|eot_id|>").at(0);
  EXPECT_EQ(tokenizer->end_of_text(), end);
  EXPECT_EQ(tokenizer->stop_tokens(), (Tokens{end, turn}));
  EXPECT_EQ(tokenizer->files(),
            (std::vector<std::string>{kFolder + "llama3/tokenizer.json", kFolder + "llama3/tokenizer_config.json",
                                      kFolder + "llama3/generation_config.json"}));
  EXPECT_EQ(tokenizer->text_prefix(), tokenizer->encode("<|begin_of_text|>"));
}

TEST(JsonTokenizer, WithoutSuchFilesTheUsualNameEndsATextWhereItIsAlone) {
  json file = file_of("llama3");
  const auto alone = tokenizer_of(file);
  EXPECT_EQ(alone->end_of_text(), alone->encode("<|end_of_text|>").at(0));
  for (json& token : file["added_tokens"])
    if (token["content"] == "<tool>") token.update({{"content", "</s>"}, {"special", true}});
  EXPECT_EQ(tokenizer_of(file)->end_of_text(), std::nullopt);
}

TEST(JsonTokenizer, AnEndOfTextThatIsNotThereIsRefused) {
  EXPECT_THROW(tokenizer_of(file_of("gpt2"), {.end_of_text = "</s>", .end_source = "tokenizer_config.json"}),
               DataError);
}

// A vocabulary of the alphabet and these tokens, with these merges.
json small_file(const std::vector<std::string>& tokens, const json& merges) {
  json file = file_of("gpt2"), vocab = json::object();
  std::vector<std::pair<int, std::string>> bytes;
  for (const auto& [text, id] : file["model"]["vocab"].items()) {
    if (text.size() <= 2 && !(text.size() == 2 && text[0] < 0x7f && text[0] > 0)) bytes.emplace_back(id, text);
  }
  std::sort(bytes.begin(), bytes.end());
  for (const auto& byte : bytes) vocab[byte.second] = vocab.size();
  EXPECT_EQ(vocab.size(), 256U);
  for (const std::string& token : tokens) vocab[token] = vocab.size();
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = merges;
  file["added_tokens"] = json::array();
  return file;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> result;
  for (const std::uint32_t token : tokenizer.encode(text)) result.push_back(tokenizer.decode({&token, 1}));
  return result;
}

TEST(JsonTokenizer, EarlierMergesComeFirstThenTheLeftmostPair) {
  using Pieces = std::vector<std::string>;
  const auto tokenizer = tokenizer_of(small_file({"bc", "ab", "aa", "abc"}, {"b c", "a b", "a a", "ab c"}));
  EXPECT_EQ(pieces(*tokenizer, "abc"), (Pieces{"a", "bc"}));    // b c before a b, after which ab c never comes up
  EXPECT_EQ(pieces(*tokenizer, "aaa"), (Pieces{"aa", "a"}));    // leftmost
  EXPECT_EQ(pieces(*tokenizer, "aaab"), (Pieces{"aa", "ab"}));  // a b before a a
  EXPECT_EQ(pieces(*tokenizer, "aaaaa"), (Pieces{"aa", "aa", "a"}));
}

TEST(JsonTokenizer, IgnoringMergesTakesAWholeWordAndNoPartOfOne) {
  using Pieces = std::vector<std::string>;
  json file = small_file({"ab", "abc"}, {"a b"});
  EXPECT_EQ(pieces(*tokenizer_of(file), "abc"), (Pieces{"ab", "c"}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(pieces(*tokenizer_of(file), "abc"), (Pieces{"abc"}));
  EXPECT_EQ(pieces(*tokenizer_of(file), "abcd"), (Pieces{"ab", "c", "d"}));
}

TEST(Bpe, LongWordsTakeAtMostThreeLookUpsAByte) {
  std::array<std::uint32_t, 256> bytes{};
  for (std::uint32_t i = 0; i < 256; ++i) bytes[i] = i;
  // a a → 256, 256 256 → 257, … : doubles eight times.
  std::vector<BpeMerge> merges = {{'a', 'a', 256}};
  for (std::uint32_t i = 256; i < 263; ++i) merges.push_back({i, i, i + 1});
  const Bpe bpe(bytes, merges);
  constexpr std::size_t size = 1 << 20;
  Tokens tokens;
  const std::int64_t looked_up = bpe.encode(std::string(size, 'a'), tokens);
  EXPECT_EQ(tokens, Tokens(size / 256, 263));
  EXPECT_LE(looked_up, static_cast<std::int64_t>(3 * size));
  EXPECT_GE(looked_up, static_cast<std::int64_t>(size - 1));
}

TEST(JsonTokenizer, AWordOfAMebibyteIsEncoded) {
  const auto tokenizer = tokenizer_of(file_of("llama3"));
  const std::string word = [] {
    std::string text;
    while (text.size() < (1U << 20)) text += "internationalization";
    return text;
  }();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(word)), word);
}

std::string refusal(const std::string& text) {
  try {
    parse_tokenizer_file(text, "t.json");
  } catch (const DataError& error) {
    return error.line();
  }
  return "(accepted)";
}

// What is said of the GPT-2 file after a change.
std::string changed(const std::function<void(json&)>& change, const std::string& style = "gpt2") {
  json file = file_of(style);
  change(file);
  return refusal(file.dump());
}

TEST(TokenizerFile, OtherModelsAreRefusedByName) {
  EXPECT_EQ(changed([](json& f) { f["model"]["type"] = "WordPiece"; }),
            "t.json: model.type: found \"WordPiece\", expected \"BPE\"");
  EXPECT_EQ(changed([](json& f) { f["model"]["type"] = "Unigram"; }),
            "t.json: model.type: found \"Unigram\", expected \"BPE\"");
  EXPECT_EQ(changed([](json& f) { f["model"]["byte_fallback"] = true; }),
            "t.json: model.byte_fallback: found true, expected false: this is not supported");
  EXPECT_EQ(changed([](json& f) { f["model"]["dropout"] = 0.1; }),
            "t.json: model.dropout: found 0.1, expected null: this is not supported");
  EXPECT_EQ(changed([](json& f) { f["model"]["dropout"] = 0.0; }), "(accepted)");
  EXPECT_EQ(changed([](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }),
            "t.json: model.continuing_subword_prefix: found \"##\", expected null: this is not supported");
  EXPECT_EQ(changed([](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }),
            "t.json: model.end_of_word_suffix: found \"</w>\", expected null: this is not supported");
  EXPECT_EQ(changed([](json& f) { f["model"]["cache"] = 1; }), "t.json: model.cache: is not supported");
}

TEST(TokenizerFile, OtherStepsAreRefusedByName) {
  EXPECT_EQ(changed([](json& f) {
              f["normalizer"] = {{"type", "Lowercase"}};
            }),
            "t.json: normalizer.type: found \"Lowercase\", expected null or \"NFC\"");
  EXPECT_EQ(changed([](json& f) {
              f["pre_tokenizer"] = {{"type", "Metaspace"}};
            }),
            "t.json: pre_tokenizer.type: found \"Metaspace\", expected \"ByteLevel\", or a Sequence of a Split and a "
            "ByteLevel");
  EXPECT_EQ(changed([](json& f) { f["pre_tokenizer"] = nullptr; }),
            "t.json: pre_tokenizer: found null, expected \"ByteLevel\", or a Sequence of a Split and a ByteLevel");
  EXPECT_EQ(changed([](json& f) { f["pre_tokenizer"]["use_regex"] = false; }),
            "t.json: pre_tokenizer.use_regex: found false, expected true where nothing else cuts words");
  EXPECT_EQ(changed([](json& f) {
              f["decoder"] = {{"type", "BPEDecoder"}};
            }),
            "t.json: decoder.type: found \"BPEDecoder\", expected \"ByteLevel\"");
  EXPECT_EQ(changed([](json& f) {
              f["post_processor"] = {{"type", "RobertaProcessing"}};
            }),
            "t.json: post_processor.type: found \"RobertaProcessing\", expected null, \"ByteLevel\", "
            "\"TemplateProcessing\" or a Sequence of those");
  EXPECT_EQ(changed([](json& f) {
              f["truncation"] = {{"max_length", 8}};
            }),
            "t.json: truncation: found an object of 1 members, expected null: this is not supported");
  EXPECT_EQ(changed([](json& f) { f["sentinel"] = 1; }), "t.json: sentinel: is not supported");
}

TEST(TokenizerFile, OtherSplitsAreRefusedByTheirPattern) {
  const auto split = [](json& f) -> json& { return f["pre_tokenizer"]["pretokenizers"][0]; };
  EXPECT_EQ(
      changed([&](json& f) { split(f)["pattern"]["Regex"] = "\\w+"; }, "llama3"),
      "t.json: pre_tokenizer.pretokenizers[0].pattern.Regex: found \\w+, expected the pattern of GPT-2, Llama 3 or "
      "Qwen2 to the letter");
  EXPECT_EQ(changed(
                [&](json& f) {
                  split(f)["pattern"] = {{"String", " "}};
                },
                "llama3"),
            "t.json: pre_tokenizer.pretokenizers[0].pattern.String: is not supported");
  EXPECT_EQ(changed([&](json& f) { split(f)["behavior"] = "Removed"; }, "llama3"),
            "t.json: pre_tokenizer.pretokenizers[0].behavior: found \"Removed\", expected \"Isolated\"");
  EXPECT_EQ(changed([&](json& f) { split(f)["invert"] = true; }, "llama3"),
            "t.json: pre_tokenizer.pretokenizers[0].invert: found true, expected false");
  EXPECT_EQ(changed([](json& f) { f["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; }, "llama3"),
            "t.json: pre_tokenizer.pretokenizers[1].use_regex: found true, expected false behind a Split");
  EXPECT_EQ(changed([](json& f) { f["pre_tokenizer"]["pretokenizers"].erase(1); }, "llama3"),
            "t.json: pre_tokenizer.pretokenizers: found an array of 1, expected a Split and a ByteLevel");
}

TEST(TokenizerFile, ATokenBehindTheTextIsRefused) {
  EXPECT_EQ(changed(
                [](json& f) {
                  json& single = f["post_processor"]["processors"][1]["single"];
                  std::swap(single[0], single[1]);
                },
                "llama3"),
            "t.json: post_processor.processors[1].single[1]: <|begin_of_text|> behind the text is not supported");
}

TEST(TokenizerFile, VocabulariesMustBeWhole) {
  const int size = static_cast<int>(file_of("gpt2")["model"]["vocab"].size());
  EXPECT_EQ(changed([](json& f) { f["model"]["vocab"]["the"] = 3; }).substr(0, 19), "t.json: model.vocab");
  EXPECT_EQ(changed([&](json& f) { f["model"]["vocab"]["extra"] = size + 1; }),
            fmt::format("t.json: model.vocab: \"extra\" is {}, expected an id below {}, the number of tokens", size + 1,
                        size + 1));
  EXPECT_EQ(
      changed([](json& f) { f["model"]["vocab"]["extra"] = -1; }),
      fmt::format("t.json: model.vocab: \"extra\" is -1, expected an id below {}, the number of tokens", size + 1));
  EXPECT_EQ(
      changed([](json& f) { f["model"]["vocab"]["extra"] = "7"; }),
      fmt::format("t.json: model.vocab: \"extra\" is \"7\", expected an id below {}, the number of tokens", size + 1));
  EXPECT_EQ(changed([](json& f) {
              const json id = f["model"]["vocab"]["!"];
              f["model"]["vocab"].erase("!");
              f["model"]["vocab"]["!?!"] = id;
            }),
            "t.json: model.vocab: has no token \"!\" for byte 0x21, expected one for each byte (byte-level BPE)");
  EXPECT_EQ(changed([](json& f) { f["model"]["vocab"] = json::array(); }),
            "t.json: model.vocab: found an array of 0, expected an object");
  EXPECT_EQ(changed([](json& f) { f["model"].erase("vocab"); }), "t.json: model.vocab: is missing");
}

TEST(TokenizerFile, MergesMustBeOfKnownTokens) {
  EXPECT_EQ(changed([](json& f) { f["model"]["merges"][3] = "t zzz"; }),
            "t.json: model.merges[3]: \"zzz\" is not in model.vocab");
  EXPECT_EQ(changed([](json& f) { f["model"]["merges"][3] = "! \""; }),
            "t.json: model.merges[3]: \"!\"\" is not in model.vocab");
  EXPECT_EQ(changed([](json& f) { f["model"]["merges"][3] = "t h e"; }),
            "t.json: model.merges[3]: found \"t h e\", expected two tokens with a space between");
  EXPECT_EQ(changed([](json& f) { f["model"]["merges"][3] = {"t"}; }),
            "t.json: model.merges[3]: found an array of 1, expected two tokens");
  EXPECT_EQ(changed([](json& f) {
              f["model"]["merges"][3] = {"t", 5};
            }),
            "t.json: model.merges[3][1]: found 5, expected a string");
  EXPECT_EQ(changed([](json& f) { f["model"]["merges"][3] = 5; }),
            "t.json: model.merges[3]: found 5, expected a string");
}

TEST(TokenizerFile, AddedTokensMustFollowTheVocabulary) {
  const auto size = file_of("llama3")["model"]["vocab"].size();
  EXPECT_EQ(
      changed([](json& f) { f["added_tokens"][1]["id"] = 0; }, "llama3"),
      fmt::format("t.json: added_tokens[1].id: \"<|end_of_text|>\" has the id 0, expected {}: new tokens follow the "
                  "others without a gap",
                  size + 1));
  EXPECT_EQ(changed([](json& f) { f["added_tokens"][0]["id"] = 7; }),
            "t.json: added_tokens[0].id: \"<|endoftext|>\" has the id 7, expected 0: its id in model.vocab");
  EXPECT_EQ(changed([](json& f) { f["added_tokens"][0].erase("lstrip"); }),
            "t.json: added_tokens[0].lstrip: is missing");
  EXPECT_EQ(changed([](json& f) { f["added_tokens"][0]["content"] = ""; }),
            "t.json: added_tokens[0].content: found \"\", expected at least one character");
  EXPECT_EQ(changed([](json& f) { f["added_tokens"].push_back(f["added_tokens"][2]); }, "llama3"),
            "t.json: added_tokens[12].content: \"<|eot_id|>\" comes twice");
}

TEST(TokenizerFile, BrokenFilesAreRefusedInOneLine) {
  EXPECT_EQ(refusal("").substr(0, 32), "t.json: is no JSON: line 1, colu");
  EXPECT_EQ(refusal("{\"model\":").substr(0, 31), "t.json: is no JSON: line 1, col");
  EXPECT_EQ(refusal("{\"model\":\"\xff\"}").substr(0, 31), "t.json: is no JSON: line 1, col");
  EXPECT_EQ(refusal("[]"), "t.json: the file: found an array of 0, expected an object");
  EXPECT_EQ(refusal("{}"), "t.json: model: is missing");
  EXPECT_EQ(refusal("{\"model\":7}"), "t.json: model: found 7, expected an object");
  const std::string deep = std::string(1'000'000, '[');
  EXPECT_EQ(refusal(deep).substr(0, 18), "t.json: is no JSON");
  EXPECT_EQ(refusal("{\"model\":" + deep + std::string(1'000'000, ']') + "}"),
            "t.json: model: found an array of 1, expected an object");
  for (const std::string part : {"{\"model\":", "\"merges\":", "\"vocab\":"}) {  // cut short anywhere
    const std::string whole = file_of("gpt2").dump();
    EXPECT_EQ(refusal(whole.substr(0, whole.find(part) + part.size() + 3)).substr(0, 18), "t.json: is no JSON") << part;
  }
}

TEST(TokenizerFile, OfATextIsSaidWhatItsFileIsCalled) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "tokenizer.json") << "not json";
  try {
    load_tokenizer(directory / "tokenizer.json");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.line().find((directory / "tokenizer.json").string() + ": is no JSON: "), 0U) << error.line();
  }
  std::filesystem::copy_file(kFolder + "gpt2/tokenizer.json", directory / "good.json");
  std::ofstream(directory / "tokenizer_config.json") << R"({"eos_token": {"content": 5}})";
  try {
    load_tokenizer(directory / "good.json");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.line(),
              (directory / "tokenizer_config.json").string() + ": eos_token.content: found 5, expected a string");
  }
}

TEST(Vocabulary, LargerThanTheModelsIsRefusedSmallerIsNot) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_NO_THROW(check_vocabulary(*tokenizer, 256));
  EXPECT_NO_THROW(check_vocabulary(*tokenizer, 300));
  try {
    check_vocabulary(*tokenizer, 255);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.line(), "data.tokenizer: bytes has 256 tokens, model.vocab_size is 255");
  }
}

}  // namespace
}  // namespace tessera
