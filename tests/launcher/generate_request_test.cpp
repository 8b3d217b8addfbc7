#include "launcher/generate_request.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.exit_code())) + " " + error.line();
  }
  return "(accepted)";
}

class FindTokenizer : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory / name; }
  std::string make(const std::string& name) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name)) << "x";
    return path(name);
  }
  test::TemporaryDirectory directory;
};

TEST_F(FindTokenizer, TheOneThatWasGivenComesFirst) {
  EXPECT_EQ(find_tokenizer("given.model", "bytes", path("run")), "given.model");
}

TEST_F(FindTokenizer, ThenTheJobsAsItIsOrFromTheRun) {
  EXPECT_EQ(find_tokenizer("", "bytes", path("run")), "bytes");
  const std::string absolute = make("data/tokenizer.json");
  EXPECT_EQ(find_tokenizer("", absolute, path("run")), absolute);
  const std::string inside = make("run/data/t.model");
  EXPECT_EQ(find_tokenizer("", "data/t.model", path("run")), inside);
}

TEST_F(FindTokenizer, ThenWhatAnImportLeft) {
  const std::string model = make("run/tokenizer/tokenizer.model");
  EXPECT_EQ(find_tokenizer("", "", path("run")), model);
  const std::string json = make("run/tokenizer/tokenizer.json");
  EXPECT_EQ(find_tokenizer("", "", path("run")), json);
  EXPECT_EQ(find_tokenizer("", "gone/tokenizer.json", path("run")), json);
  EXPECT_EQ(find_tokenizer("", "gone/tokenizer.model", path("run")), model) << "of an import that was moved";
}

TEST_F(FindTokenizer, ElseOneLineSaysWhatIsMissing) {
  const std::string hint = "; hint: --tokenizer FILE: what made the tokens that the model was trained on";
  EXPECT_EQ(refusal([&] { find_tokenizer("", "", path("run")); }), "2 " + path("run") + ": no tokenizer" + hint);
  EXPECT_EQ(refusal([&] { find_tokenizer("", "gone/t.model", path("run")); }),
            "2 data.tokenizer: gone/t.model is not there" + hint);
}

TEST(GenerateRequest, WrongOptionsAreRefusedBeforeAnythingIsRead) {
  const auto with = [](const std::function<void(GenerateOptions&)>& change) {
    GenerateOptions options{.checkpoint = "nowhere", .prompts = {"x"}};
    change(options);
    return refusal([&] { make_generate_request(options); });
  };
  EXPECT_EQ(with([](auto& o) { o.prompts.clear(); }),
            "2 generate: no prompt; hint: --prompt TEXT, or --prompt-file FILE (- is standard input)");
  EXPECT_EQ(with([](auto& o) { o.max_tokens = 0; }), "2 --max-tokens 0, expected at least 1");
  EXPECT_EQ(with([](auto& o) { o.sampling.top_p = 1.5; }), "2 top-p 1.5, expected a number above 0 and at most 1");
  EXPECT_EQ(with([](auto& o) { o.sampling.temperature = -1; }), "2 temperature -1, expected a number of at least 0");
  EXPECT_EQ(with([](auto& o) { o.sampling.top_k = -1; }), "2 top-k -1, expected at least 0 (0: off)");
  EXPECT_EQ(with([](auto& o) {
              o.prompt_files = {"-", "-"};
            }),
            "2 --prompt-file: standard input can be read only once");
  EXPECT_EQ(with([](auto&) {}), "5 nowhere: there is nothing; hint: a run directory, or the folder of a checkpoint");
}

TEST(GenerateRequest, ArrivesAsItWasSent) {
  const GenerateRequest request{.folder = "runs/no UTF-8: \xe9/checkpoints/step-00000007",
                                .config = "run: {name: \"\\u00e9\"}\n",
                                .tokenizer = "bytes",
                                .tokenizer_vocab_size = 256,
                                .stop_tokens = {7, 8},
                                .prompt_tokens = {{1, 2, 3}, {4}}};
  EXPECT_EQ(GenerateRequest::decode(request.encode()), request);
}

}  // namespace
}  // namespace tessera
