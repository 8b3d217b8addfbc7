// `tessera generate` as users start it: real mpirun, a checkpoint of a small job.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/train/run_directory.h"
#include "runtime/train/run_lock.h"
#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/safetensors_file.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::kTessera;

const std::string kTokenizers = TESSERA_SOURCE_DIR "/tests/data/tokenizers/";

// One run for all tests: a few steps on random tokens of the GPT-2 style tokenizer.
class MpiGenerate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory = new test::TemporaryDirectory;
    JobConfig config = test::llama_t(4);
    config.model.vocab_size = 1300;
    config.data.train = {{test::write_tokens(*directory / "train.bin", 2000, 1200), 1.0}};
    config.data.tokenizer = kTokenizers + "gpt2/tokenizer.json";
    config.checkpoint.every = 4;
    test::run_job(config, 2, 1, *directory / "run");
  }
  static void TearDownTestSuite() { delete directory; }

  static CommandResult run(const std::string& command) {
    return test::run_command(command, {.timeout_seconds = 120, .working_directory = directory->path().string()});
  }
  static CommandResult generate(int num_ranks, const std::string& arguments) {
    return run(test::mpirun(num_ranks, "--bind-to none") + kTessera + "generate " + arguments);
  }
  // The names and times of everything below a folder.
  static std::map<std::string, std::filesystem::file_time_type> listing(const std::string& name) {
    std::map<std::string, std::filesystem::file_time_type> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(*directory / name))
      files[entry.path().string()] = entry.last_write_time();
    return files;
  }

  static test::TemporaryDirectory* directory;
};
test::TemporaryDirectory* MpiGenerate::directory = nullptr;

TEST_F(MpiGenerate, WritesTheSameTextOnOneRankAndTwoWhileTheRunGoesOn) {
  std::optional<RunLock> lock;  // as a running job holds it
  RunDirectory(*directory / "run").acquire("test", lock);
  ASSERT_TRUE(lock.has_value());
  const auto before = listing("run");
  const std::string arguments = "run --prompt 'The program' --max-tokens 24 --seed 7";
  const CommandResult alone = generate(1, arguments), both = generate(2, arguments);
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_TRUE(alone.out.starts_with("The program")) << alone.out;
  EXPECT_GT(alone.out.size(), 30U);
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.out, alone.out);
  EXPECT_EQ(alone.err, fmt::format("note: {}gpt2/tokenizer.json has 1200 tokens, the model 1300: those above are never "
                                   "chosen\n",
                                   kTokenizers));
  EXPECT_EQ(both.err, alone.err);
  EXPECT_EQ(listing("run"), before);
}

TEST_F(MpiGenerate, SaysInJsonWhatWasChosen) {
  std::ofstream(*directory / "prompt.txt") << "from a file\n";
  const std::string arguments =
      "run/checkpoints/step-00000004 --prompt one --prompt-file prompt.txt --prompt-file - "
      "--max-tokens 5 --json < prompt.txt";
  const CommandResult result = generate(2, arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["checkpoint"], "run/checkpoints/step-00000004");
  EXPECT_EQ(json["seed"], 0);
  ASSERT_EQ(json["samples"].size(), 3U);
  EXPECT_EQ(json["samples"][0]["prompt"], "one");
  EXPECT_EQ(json["samples"][1]["prompt"], "from a file");
  // Tokens are a function of text, seed and position.
  EXPECT_EQ(json["samples"][1], json["samples"][2]);
  EXPECT_EQ(json["samples"][0]["tokens"].size(), 5U);
  EXPECT_EQ(json["samples"][0]["ended_by"], "max_tokens");
}

TEST_F(MpiGenerate, OutputThatCannotBeWrittenIsAnError) {
  const CommandResult result = run(kTessera + "generate run --prompt x --max-tokens 2 --tokenizer bytes > /dev/full");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_NE(result.err.find("] stdout: not all of the output could be written\n"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("MPI_ABORT"), std::string::npos) << result.err;
}

TEST_F(MpiGenerate, ErrorsAreOneLineWithTheirCode) {
  struct Case {
    std::string arguments;
    int code;
    std::string line;
  };
  const std::vector<Case> cases = {
      {"run --prompt x --tokenizer gone.json", 3,
       "[rank 0/2 {}] gone.json: no such tokenizer; expected 'bytes', a SentencePiece *.model or a tokenizer.json\n"},
      {"run --prompt '' --tokenizer bytes", 2,
       "[rank 0/2 {}] prompt 1: '' makes no token with bytes; hint: at least one character\n"},
      {"train.bin/nothing --prompt x", 5,
       "[rank 0/2 {}] train.bin/nothing: there is nothing; hint: a run directory, or the folder of a checkpoint\n"},
      {"run --prompt x --top-p 0", 2, "[rank 0/2 {}] top-p 0, expected a number above 0 and at most 1\n"},
  };
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size()), 0);
  for (const Case& each : cases) {
    const CommandResult result = generate(2, each.arguments);
    EXPECT_EQ(result.exit_code, each.code) << each.arguments;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, fmt::format(fmt::runtime(each.line), host.data())) << each.arguments;
  }
}

// A model of transformers whose vocabulary holds that of the GPT-2 style tokenizer, in `folder`.
void write_huggingface_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::string source = TESSERA_SOURCE_DIR "/tests/data/huggingface/gpt2/";
  test::RawTensors tensors = test::read_safetensors(source + "model.safetensors");
  constexpr std::int64_t kVocabulary = 1300, kHidden = 24;
  std::vector<float> table(kVocabulary * kHidden);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i * 7919 % 1000) / 1000 - 0.5F;
  tensors.at("transformer.wte.weight") = test::raw_tensor({kVocabulary, kHidden}, table);
  test::write_safetensors(folder / "model.safetensors", tensors);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(source + "config.json"));
  config.update({{"vocab_size", kVocabulary}, {"bos_token_id", 0}, {"eos_token_id", 0}});
  std::ofstream(folder / "config.json") << config;
  std::filesystem::copy_file(kTokenizers + "gpt2/tokenizer.json", folder / "tokenizer.json");
}

TEST_F(MpiGenerate, AnImportMakesTextAndSoDoesWhatIsExportedFromIt) {
  write_huggingface_model(*directory / "gpt2");
  const auto tessera = [](const std::string& arguments) {
    const CommandResult result = run(kTessera + arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << ": " << result.err;
    return result.out;
  };
  const auto text_of = [&](const std::string& run_directory) {
    const auto json = nlohmann::json::parse(
        tessera("generate " + run_directory + " --prompt 'The program' --max-tokens 20 --temperature 0 --json"));
    EXPECT_EQ(json["tokenizer"], run_directory + "/tokenizer/tokenizer.json");
    return json["samples"].dump();
  };
  // Whoever completes names with the tabulator types a slash at the end.
  const std::string said = tessera("checkpoint import gpt2/ imports/gpt2/");
  EXPECT_NE(said.find("\nimports/gpt2 | next: tessera generate imports/gpt2 --prompt \"The\"; or set data.train in "
                      "imports/gpt2/config.yaml, then tessera train it\n"),
            std::string::npos)
      << said;
  EXPECT_EQ(check_config(*directory / "imports/gpt2/config.yaml").config.run.name, "gpt2-tuned");
  const std::string text = text_of("imports/gpt2");
  std::filesystem::rename(*directory / "imports", *directory / "moved");
  EXPECT_EQ(text_of("moved/gpt2"), text);

  tessera("checkpoint export moved/gpt2/checkpoints/step-00000000/ exported/");
  EXPECT_EQ(test::read_text(*directory / "exported/tokenizer.json"),
            test::read_text(kTokenizers + "gpt2/tokenizer.json"));
  tessera("checkpoint import exported again");
  EXPECT_NE(tessera("checkpoint diff moved/gpt2 again").find("equal: the same root hash"), std::string::npos);
  EXPECT_EQ(text_of("again"), text);
}

}  // namespace
}  // namespace tessera
