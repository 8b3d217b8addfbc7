// `tessera config …` as a user types it: exit codes and what is printed.
#include "tools/config_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "tests/support/tool_command.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::string kTiny = std::string(TESSERA_SOURCE_DIR) + "/configs/tiny.yaml";

class ConfigCommand : public testing::Test {
 protected:
  ConfigCommand()
      : bad_((fs::temp_directory_path() / ("tessera_bad_" + std::to_string(::getpid()) + ".yaml")).string()) {
    std::ifstream good(kTiny);
    std::stringstream text;
    text << good.rdbuf();
    std::ofstream(bad_) << "# bad\n" << text.str() << "loss:\n  z_los: 1\n";
  }
  ~ConfigCommand() override { fs::remove(bad_); }

  // The exit code; what was printed on stdout goes to out_.
  int run(std::vector<std::string> words) {
    words.insert(words.begin(), "config");
    const test::ToolResult result = test::run_tool(add_config_commands, std::move(words));
    out_ = result.out;
    error_ = result.error;
    return result.code;
  }

  std::string bad_, out_, error_;
};

TEST_F(ConfigCommand, ShowPrintsAJobThatLoadsBack) {
  EXPECT_EQ(run({"show", kTiny, "--set", "run.steps=100"}), 0);
  const ConfigResult again = check_config_text(out_, kTiny);
  EXPECT_TRUE(again.problems.empty());
  EXPECT_EQ(again.config, load_config(kTiny, {"run.steps=100"}));
}

TEST_F(ConfigCommand, ShowTakesOptionsBeforeTheFileAndPrintsJson) {
  EXPECT_EQ(run({"show", "--json", "--set", "run.steps=7", "--set", "run.seed=3", kTiny}), 0);
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["run"]["steps"], 7);
  EXPECT_EQ(json["run"]["seed"], 3);
}

TEST_F(ConfigCommand, ShowOfABadFileEndsWithCodeTwoAndItsProblems) {
  EXPECT_EQ(run({"show", bad_}), 2);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(error_.rfind(bad_ + ":", 0), 0u) << error_;
}

TEST_F(ConfigCommand, CheckSaysOkWithTheArithmetic) {
  EXPECT_EQ(run({"check", kTiny}), 0);
  EXPECT_EQ(out_, "ok: " + kTiny + ": 10 steps of 8 sequences × 16 tokens; lanes 4, dp 1, 2 or 4\n");
  EXPECT_EQ(run({"check", kTiny, "--ranks", "2"}), 0);
  EXPECT_EQ(
      out_,
      "ok: " + kTiny +
          ": 10 steps of 8 sequences × 16 tokens; lanes 4, dp 1, 2 or 4; 2 ranks: 8 = dp 2 × micro 2 × accumulate 2\n");
}

TEST_F(ConfigCommand, CheckListsProblemsOfEveryFileWithCodeTwo) {
  EXPECT_EQ(run({"check", bad_, kTiny, "--set", "run.stepz=1"}), 2);
  EXPECT_NE(out_.find(bad_ + ":"), std::string::npos);
  EXPECT_NE(out_.find(": loss.z_los: unknown key; hint: z_loss\n"), std::string::npos) << out_;
  EXPECT_NE(out_.find("--set: run.stepz: unknown key; hint: steps\n"), std::string::npos) << out_;
  EXPECT_EQ(run({"check", kTiny, "--ranks", "8"}), 2);
  EXPECT_EQ(out_, kTiny + ": reproducibility.lanes: 4 is less than dp 8; hint: dp values that fit: 1, 2, 4\n");
  EXPECT_EQ(run({"check", "absent.yaml"}), 2);
  EXPECT_EQ(out_, "absent.yaml: cannot be read: No such file or directory\n");
}

TEST_F(ConfigCommand, CheckReportsAsJson) {
  EXPECT_EQ(run({"check", bad_, "--json"}), 2);
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["ok"], false);
  ASSERT_EQ(json["problems"].size(), 1u);
  EXPECT_EQ(json["problems"][0]["key"], "loss.z_los");
  EXPECT_EQ(json["problems"][0]["hint"], "z_loss");
  EXPECT_GT(json["problems"][0]["line"], 1);
  EXPECT_EQ(run({"check", kTiny, "--json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_)["ok"], true);
}

TEST_F(ConfigCommand, ExplainAnswersForKeysSectionsAndNothing) {
  EXPECT_EQ(run({"explain", "lr"}), 0);
  EXPECT_EQ(out_, explain_key("optimizer.learning_rate"));
  EXPECT_EQ(run({"explain"}), 0);
  EXPECT_EQ(out_, explain_key(""));
  EXPECT_EQ(run({"explain", "model.hidden_sizes"}), 2);
  EXPECT_EQ(error_, "model.hidden_sizes: unknown key; hint: hidden_size");
}

TEST_F(ConfigCommand, CheckSaysWhichGroupMatchesNoParameter) {
  const std::string groups = "optimizer.groups=[{match: norm, weight_decay: 0}, {match: '^hed', learning_rate: 1e-4}]";
  EXPECT_EQ(run({"check", "--set", groups, kTiny}), 2);
  EXPECT_EQ(out_, kTiny +
                      ": optimizer.groups[1].match: ^hed matches no parameter; hint: tessera plan --json lists the "
                      "parameters' names\n");
  EXPECT_EQ(run({"check", "--set", "optimizer.groups=[{match: norm, weight_decay: 0}]", kTiny}), 0);
}

TEST_F(ConfigCommand, SchemaIsJson) {
  EXPECT_EQ(run({"schema"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_)["title"], "Tessera job");
}

TEST_F(ConfigCommand, HelpFitsAScreenWithExamplesFirst) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--help"},
                                                {"show", "--help"},
                                                {"check", "--help"},
                                                {"explain", "--help"},
                                                {"schema", "--help"}}) {
    EXPECT_EQ(run(words), 0);
    EXPECT_LE(std::count(out_.begin(), out_.end(), '\n'), 24) << out_;
    const std::size_t example = out_.find("tessera config");
    EXPECT_LT(example, out_.find("sage")) << out_;  // Usage or usage
    std::istringstream lines(out_);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST_F(ConfigCommand, WithoutASubcommandIsAUsageError) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({}), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tessera
