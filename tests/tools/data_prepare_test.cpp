#include "tools/data_prepare.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/train/token_data.h"
#include "runtime/train/tokenizer.h"
#include "tools/data_show.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class DataPrepare : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera-prepare-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::vector<std::string> names(const std::string& folder) const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(directory_ / folder))
      result.push_back(entry.path().filename().string());
    std::sort(result.begin(), result.end());
    return result;
  }
  std::vector<std::uint32_t> tokens(const std::string& name) const {
    const TokenFile file = TokenFile::open(path(name));
    std::vector<std::uint32_t> result;
    for (std::int64_t i = 0; i < file.num_tokens(); ++i) result.push_back(file[i]);
    return result;
  }
  std::string bytes_as_text(const std::string& name) const { return load_tokenizer("bytes")->decode(tokens(name)); }
  PrepareOptions options(std::vector<std::string> inputs) const {
    PrepareOptions given;
    given.inputs = std::move(inputs);
    given.output = path("out");
    given.tokenizer = "bytes";
    given.validation_fraction = 0;
    return given;
  }
  fs::path directory_;
};

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST_F(DataPrepare, BytesOfDocumentsWithABlankLineAfterEach) {
  const PrepareSummary summary = prepare_data(options({write("a.txt", "one"), write("b.txt", "two!")}));
  EXPECT_EQ(names("out"), (std::vector<std::string>{"dataset.json", "train-00000.bin"}));
  EXPECT_EQ(bytes_as_text("out/train-00000.bin"), "one\n\ntwo!\n\n");
  EXPECT_EQ(summary.train.documents, 2);
  EXPECT_EQ(summary.train.bytes, 7);
  EXPECT_EQ(summary.train.tokens, 11);
  EXPECT_EQ(summary.tokenizer, "bytes");
  EXPECT_EQ(summary.vocab_size, 256);
}

// Four tokens of which two are 'a', one 'b', one 'c': 1/2 ln 2 + 2 · 1/4 ln 4 = 3/2 ln 2.
TEST_F(DataPrepare, TheUnigramEntropyIsThatOfTheTokens) {
  PrepareOptions given = options({write("a.txt", "aabc")});
  given.separator = "";
  const PrepareSummary summary = prepare_data(given);
  EXPECT_NEAR(summary.train.unigram_entropy_per_token, 1.5 * std::log(2.0), 1e-15);
  EXPECT_NEAR(summary.train.unigram_entropy_per_byte(), 1.5 * std::log(2.0), 1e-15);
  EXPECT_EQ(summary.train.bytes_per_token(), 1.0);
}

// With a separator of two more 'a' a document of four bytes takes six tokens, four of them 'a': the entropy is of six
// tokens, spread over four bytes.
TEST_F(DataPrepare, SeparatorsAreTokensButNoBytes) {
  PrepareOptions given = options({write("a.txt", "aabc")});
  given.separator = "aa";
  const PrepareSummary summary = prepare_data(given);
  const double entropy = 4 / 6.0 * std::log(6 / 4.0) + 2 / 6.0 * std::log(6.0);
  EXPECT_NEAR(summary.train.unigram_entropy_per_token, entropy, 1e-15);
  EXPECT_NEAR(summary.train.unigram_entropy_per_byte(), entropy * 6 / 4, 1e-15);
}

TEST_F(DataPrepare, ShardsHoldSoManyTokensAndTheLastTheRest) {
  PrepareOptions given = options({write("a.txt", "0123456789")});
  given.shard_tokens = 5;
  const PrepareSummary summary = prepare_data(given);
  EXPECT_EQ(summary.train.files, (std::vector<std::string>{"train-00000.bin", "train-00001.bin", "train-00002.bin"}));
  EXPECT_EQ(bytes_as_text("out/train-00000.bin") + bytes_as_text("out/train-00001.bin") +
                bytes_as_text("out/train-00002.bin"),
            "0123456789\n\n");
  EXPECT_EQ(tokens("out/train-00001.bin").size(), 5U);
}

TEST_F(DataPrepare, TheFractionIsSpreadOverTheTextAndNothingIsLost) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "line " + std::to_string(i) + "\n";
  PrepareOptions given = options({write("a.txt", text)});
  given.validation_fraction = 0.1;
  given.separator = "";
  const PrepareSummary summary = prepare_data(given);
  const double share = static_cast<double>(summary.validation.bytes) / static_cast<double>(text.size());
  EXPECT_NEAR(share, 0.1, 0.02);
  EXPECT_EQ(summary.train.bytes + summary.validation.bytes, static_cast<std::int64_t>(text.size()));
  EXPECT_GE(summary.validation.documents, 5);
  // Every line is whole on one side.
  const std::string train = "\n" + bytes_as_text("out/train-00000.bin"),
                    held_out = "\n" + bytes_as_text("out/validation.bin");
  for (int i = 0; i < 20000; i += 97) {
    const std::string line = "\nline " + std::to_string(i) + "\n";
    EXPECT_NE(train.find(line) == std::string::npos, held_out.find(line) == std::string::npos) << line;
  }
}

TEST_F(DataPrepare, ValidationFilesAreHeldOut) {
  PrepareOptions given = options({write("a.txt", "aaa")});
  given.validation = {write("v.txt", "vv")};
  const PrepareSummary summary = prepare_data(given);
  EXPECT_EQ(bytes_as_text("out/train-00000.bin"), "aaa\n\n");
  EXPECT_EQ(bytes_as_text("out/validation.bin"), "vv\n\n");
  given.validation = {path("a.txt")};
  given.output = path("other");
  EXPECT_NE(refusal([&] { prepare_data(given); }).find("named twice"), std::string::npos);
}

TEST_F(DataPrepare, ATrainedTokenizerIsKeptBesideItsTokensAndGivesTheTextBack) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "the quick brown fox number " + std::to_string(i) + " jumps\n";
  PrepareOptions given = options({write("a.txt", text)});
  given.tokenizer = "train:bpe:400";
  const PrepareSummary summary = prepare_data(given);
  EXPECT_EQ(summary.tokenizer, path("out/tokenizer.model"));
  EXPECT_EQ(summary.vocab_size, 400);
  const auto tokenizer = load_tokenizer(path("out/tokenizer.model"));
  EXPECT_EQ(tokenizer->decode(tokens("out/train-00000.bin")), text);
  EXPECT_EQ(tokens("out/train-00000.bin").back(), *tokenizer->end_of_text());
  EXPECT_GT(summary.train.bytes_per_token(), 2.0);

  // The same text with the tokenizer as a file gives the same folder.
  given.tokenizer = path("out/tokenizer.model");
  given.output = path("again");
  prepare_data(given);
  EXPECT_EQ(tokens("again/train-00000.bin"), tokens("out/train-00000.bin"));
}

TEST_F(DataPrepare, TheSummaryIsInTheFolder) {
  PrepareOptions given = options({write("a.txt", "aaa")});
  given.validation = {write("v.txt", "v\xffv")};
  prepare_data(given);
  std::ifstream in(path("out/dataset.json"));
  const auto dataset = nlohmann::json::parse(in);
  EXPECT_EQ(dataset["format"], 1);
  EXPECT_EQ(dataset["tokenizer"], "bytes");
  EXPECT_EQ(dataset["vocab_size"], 256);
  EXPECT_EQ(dataset["invalid_utf8_bytes"], 1);
  EXPECT_EQ(dataset["train"]["files"], nlohmann::json::array({"train-00000.bin"}));
  EXPECT_EQ(dataset["train"]["tokens"], 5);
  EXPECT_EQ(dataset["validation"]["bytes"], 3);
}

TEST_F(DataPrepare, NothingIsOverwrittenUnasked) {
  PrepareOptions given = options({write("a.txt", "first")});
  prepare_data(given);
  given.inputs = {write("b.txt", "second")};
  EXPECT_NE(refusal([&] { prepare_data(given); }).find("holds files already"), std::string::npos);
  EXPECT_EQ(bytes_as_text("out/train-00000.bin"), "first\n\n");
  given.overwrite = true;
  prepare_data(given);
  EXPECT_EQ(bytes_as_text("out/train-00000.bin"), "second\n\n");
  EXPECT_EQ(names("."), (std::vector<std::string>{"a.txt", "b.txt", "out"}));
}

TEST_F(DataPrepare, AFolderOfOthersIsNeverOverwritten) {
  PrepareOptions given = options({write("a.txt", "text")});
  given.overwrite = true;
  fs::create_directory(path("out"));
  write("out/thesis.doc", "years of work");
  EXPECT_NE(refusal([&] { prepare_data(given); }).find("thesis.doc"), std::string::npos);
  EXPECT_EQ(names("out"), (std::vector<std::string>{"thesis.doc"}));
}

// Names that data prepare could have chosen are not enough: the folder's own list says which files it wrote.
TEST_F(DataPrepare, OnlyFilesThatTheFolderListsAreOverwritten) {
  PrepareOptions given = options({write("a.txt", "text")});
  prepare_data(given);
  given.overwrite = true;
  for (const std::string name : {"train-00001.bin", "train-mine.bin", "validation.bin"}) {
    write("out/" + name, "years of work");
    EXPECT_NE(refusal([&] { prepare_data(given); }).find("holds " + name), std::string::npos);
    EXPECT_EQ(names("out").size(), 3U);
    EXPECT_TRUE(fs::exists(path("out/" + name)));
    fs::remove(path("out/" + name));
  }
  EXPECT_EQ(refusal([&] { prepare_data(given); }), "(accepted)");
}

TEST_F(DataPrepare, AnOutputThatCannotBeIsRefused) {
  PrepareOptions given = options({write("a.txt", "text")});
  given.overwrite = true;
  fs::create_directory(path("real"));
  fs::create_directory_symlink(path("real"), path("link"));
  for (const std::string& output : {path("link"), path("link/")}) {
    given.output = output;
    EXPECT_NE(refusal([&] { prepare_data(given); }).find("is a symbolic link"), std::string::npos);
  }
  given.output = "";
  EXPECT_EQ(refusal([&] { prepare_data(given); }), "--output: is empty, expected a folder");
  given.output = path("a.txt");
  EXPECT_NE(refusal([&] { prepare_data(given); }).find("is a file, expected a folder"), std::string::npos);
  given.output = path("a.txt/sub");
  EXPECT_NE(refusal([&] { prepare_data(given); }).find("Not a directory"), std::string::npos);
  given.output = path(std::string(300, 'x'));
  EXPECT_NE(refusal([&] { prepare_data(given); }).find("File name too long"), std::string::npos);
  EXPECT_EQ(names("."), (std::vector<std::string>{"a.txt", "link", "real"}));
}

// A terabyte that takes no room on the disk: the work is somewhere in it when the signal comes.
TEST_F(DataPrepare, ASignalLeavesNothingAndEndsTheProcessAsItWould) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string text = write("text.txt", "");
    fs::resize_file(text, std::uintmax_t{1} << 40);
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL);
      try {
        prepare_data(options({text}));
      } catch (...) {
      }
      ::_exit(1);
    }
    const std::string partial = path("out.partial-" + std::to_string(child));
    int status = 0;
    while (!fs::exists(partial) && ::waitpid(child, &status, WNOHANG) == 0) ::usleep(1000);
    ASSERT_TRUE(fs::exists(partial));
    ::kill(child, signal);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(names("."), std::vector<std::string>{"text.txt"});
  }
}

TEST_F(DataPrepare, AFailureLeavesNothing) {
  const PrepareOptions given = options({write("a.jsonl", "{\"text\": \"good\"}\n{\"texts\": \"bad\"}\n")});
  EXPECT_EQ(refusal([&] { prepare_data(given); }), path("a.jsonl") + ":2: no \"text\"");
  EXPECT_EQ(names("."), (std::vector<std::string>{"a.jsonl"}));
}

TEST_F(DataPrepare, OptionsThatCannotBeAreRefused) {
  PrepareOptions given = options({write("a.txt", "text")});
  const auto message = [&](const std::function<void(PrepareOptions&)>& change) {
    PrepareOptions changed = given;
    change(changed);
    return refusal([&] { prepare_data(changed); });
  };
  EXPECT_NE(message([](PrepareOptions& o) { o.validation_fraction = 1; }).find("--validation-fraction 1"),
            std::string::npos);
  EXPECT_NE(message([](PrepareOptions& o) { o.validation_fraction = 0.05; }).find("validation side is empty"),
            std::string::npos);
  EXPECT_NE(message([](PrepareOptions& o) { o.tokenizer = "train:bpe:many"; }).find("train:bpe:many"),
            std::string::npos);
  EXPECT_NE(message([](PrepareOptions& o) { o.tokenizer = "gpt2"; }).find("gpt2: no such tokenizer"),
            std::string::npos);
  EXPECT_NE(message([](PrepareOptions& o) { o.shard_tokens = 0; }).find("--shard-tokens 0"), std::string::npos);
  EXPECT_NE(message([&](PrepareOptions& o) { o.inputs = {path("absent-*.txt")}; }).find("no file matches"),
            std::string::npos);
  EXPECT_NE(message([&](PrepareOptions& o) { o.inputs = {write("empty.txt", "")}; }).find("no text to train on"),
            std::string::npos);
  EXPECT_EQ(names("."), (std::vector<std::string>{"a.txt", "empty.txt"}));
}

TEST_F(DataPrepare, ShowTellsWhatAFileHolds) {
  prepare_data(options({write("a.txt", "banana\x1b[31m")}));
  const TokenFileSummary summary = summarize_token_file(path("out/train-00000.bin"), "", 8);
  EXPECT_EQ(summary.format, "llm.c u16");
  EXPECT_EQ(summary.num_tokens, 13);
  EXPECT_EQ(summary.num_bytes, 1024 + 26);
  EXPECT_EQ(summary.largest_id, 110U);  // 'n' and 'm': 'n' is 110
  EXPECT_EQ(summary.num_distinct, 9);   // b a n ESC [ 3 1 m \n
  EXPECT_EQ(summary.first, (std::vector<std::uint32_t>{98, 97, 110, 97, 110, 97, 27, 91}));
  EXPECT_EQ(summary.tokenizer, "bytes");  // dataset.json beside the file says so
  EXPECT_EQ(summary.text, "banana\x1b[");
  EXPECT_NE(to_text(summary).find("banana\\x1b["), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(to_json(summary))["largest_id"], 110);
}

const std::string kLlama3 = TESSERA_SOURCE_DIR "/tests/data/tokenizers/llama3/tokenizer.json";

TEST_F(DataPrepare, ATokenizerJsonBeginsAndEndsEveryDocumentAsItSays) {
  PrepareOptions given = options({write("a.txt", "The program"), write("b.txt", "a<|eot_id|>b")});
  given.tokenizer = kLlama3;
  const PrepareSummary summary = prepare_data(given);
  EXPECT_EQ(names("out"), (std::vector<std::string>{"dataset.json", "generation_config.json", "tokenizer.json",
                                                    "tokenizer_config.json", "train-00000.bin"}));
  const auto tokenizer = load_tokenizer(path("out/tokenizer.json"));
  std::vector<std::uint32_t> expected;
  for (const char* text : {"<|begin_of_text|>", "The program", "<|end_of_text|>", "<|begin_of_text|>", "a<|eot_id|>b",
                           "<|end_of_text|>"}) {
    for (const std::uint32_t token : tokenizer->encode(text)) expected.push_back(token);
  }
  EXPECT_EQ(tokens("out/train-00000.bin"), expected);
  EXPECT_EQ(summary.special_tokens_in_text, 1);
  EXPECT_EQ(summary.tokenizer, path("out/tokenizer.json"));
  const auto json = nlohmann::json::parse(std::ifstream(path("out/dataset.json")));
  EXPECT_EQ(json["tokenizer"], "tokenizer.json");
  EXPECT_EQ(json["special_tokens_in_text"], 1);
}

TEST_F(DataPrepare, DataShowDecodesWithTheTokenizerJsonBesideTheTokens) {
  PrepareOptions given = options({write("a.txt", "The program \xf0\x9f\x98\x80")});
  given.tokenizer = kLlama3;
  prepare_data(given);
  const TokenFileSummary shown = summarize_token_file(path("out/train-00000.bin"), "", 100);
  EXPECT_EQ(shown.tokenizer, path("out/tokenizer.json"));
  EXPECT_EQ(shown.text, "<|begin_of_text|>The program \xf0\x9f\x98\x80<|end_of_text|>");
}

TEST_F(DataPrepare, AFolderWithATokenizerJsonIsOverwrittenWhole) {
  PrepareOptions given = options({write("a.txt", "The program")});
  given.tokenizer = kLlama3;
  prepare_data(given);
  given.tokenizer = "bytes";
  given.overwrite = true;
  prepare_data(given);
  EXPECT_EQ(names("out"), (std::vector<std::string>{"dataset.json", "train-00000.bin"}));
}

TEST_F(DataPrepare, ATokenizerJsonOfAnotherKindIsRefusedAndNothingIsLeft) {
  PrepareOptions given = options({write("a.txt", "text")});
  given.tokenizer = write("t.json", R"({"model": {"type": "Unigram", "vocab": []}})");
  EXPECT_EQ(refusal([&] { prepare_data(given); }),
            given.tokenizer + ": model.type: found \"Unigram\", expected \"BPE\"");
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
}  // namespace tessera
