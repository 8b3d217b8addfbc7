#include "tools/data_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class DataCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera-data-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    std::ofstream(path("a.txt"), std::ios::binary) << "one two";
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  // What the command prints.
  static std::string run(std::vector<std::string> arguments) {
    CLI::App app;
    int exit_code = 0;
    add_data_commands(app, exit_code);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the last argument first
    ::testing::internal::CaptureStdout();
    try {
      app.parse(arguments);
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
    EXPECT_EQ(exit_code, 0);
    return ::testing::internal::GetCapturedStdout();
  }
  std::vector<std::string> prepare(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"data",        "prepare", path("a.txt"),           "--output", path("out"),
                                          "--tokenizer", "bytes",   "--validation-fraction", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  fs::path directory_;
};

TEST_F(DataCommand, PrepareSaysCountsAndEntropy) {
  const std::string text = run(prepare({"--separator", "\\n"}));
  EXPECT_NE(text.find("train       1 document, 7 bytes, 8 tokens, 0.8750 bytes per token: train-00000.bin"),
            std::string::npos)
      << text;
  // o twice and six others once in "one two\n": 1/4 ln 4 + 6/8 ln 8.
  EXPECT_NE(text.find("unigram entropy of the training tokens: 1.9062 nats per token, 2.1785 nats per byte"),
            std::string::npos)
      << text;
}

TEST_F(DataCommand, JsonParsesAndShowReadsWhatPrepareWrote) {
  const auto summary = nlohmann::json::parse(run(prepare({"--json", "--separator", "\\t\\\\"})));
  EXPECT_EQ(summary["train"]["tokens"], 9);
  const auto shown =
      nlohmann::json::parse(run({"data", "show", path("out/train-00000.bin"), "--json", "--head", "100"}));
  EXPECT_EQ(shown["text"], "one two\t\\");
  EXPECT_EQ(shown["format"], "llm.c u16");
}

TEST_F(DataCommand, MistakesAreErrorsOfTheirKind) {
  EXPECT_THROW(run(prepare({"--separator", "\\q"})), ConfigError);
  EXPECT_THROW(run(prepare({"--shard-tokens", "many"})), CLI::ParseError);
  EXPECT_THROW(run(prepare({"--validation", path("a.txt")})), CLI::ParseError);  // beside --validation-fraction
  EXPECT_THROW(run({"data", "prepare", path("a.txt"), "--output", path("out")}), CLI::ParseError);
  EXPECT_THROW(run({"data", "show", path("a.txt")}), DataError);
  EXPECT_THROW(run({"data", "show", path("a.txt"), "--head", "-1"}), ConfigError);
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
}  // namespace tessera
