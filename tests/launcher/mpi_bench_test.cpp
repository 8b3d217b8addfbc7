#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"

namespace tessera {
namespace {

using test::kTessera;

// A bench prints a list of figures, each with its baseline and ratio = value ÷ baseline.
void expect_figures(const std::string& text, std::size_t at_least) {
  const nlohmann::json figures = nlohmann::json::parse(text);
  ASSERT_TRUE(figures.is_array());
  EXPECT_GE(figures.size(), at_least);
  for (const nlohmann::json& figure : figures) {
    for (const char* key : {"name", "value", "unit", "baseline_name", "baseline", "ratio"})
      EXPECT_TRUE(figure.contains(key)) << figure;
    // What is added to a step is a difference: 0 where the noise of a busy host is larger.
    const bool is_difference = figure.at("name").get<std::string>().ends_with(" adds");
    EXPECT_GE(figure.at("value").get<double>(), is_difference ? 0.0 : 1e-12) << figure;
  }
}

TEST(MpiBench, MeasuresTheStartOfAJobBesideAnEmptyProgram) {
  const test::CommandResult result = test::run_command(kTessera + "bench startup -n 2 --runs 1 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_figures(result.out, 2);
  const nlohmann::json first = nlohmann::json::parse(result.out).at(0);
  EXPECT_NEAR(first.at("ratio").get<double>(), first.at("value").get<double>() / first.at("baseline").get<double>(),
              1e-9);
}

TEST(MpiBench, MeasuresCollectivesOfTwoRanks) {
  const test::CommandResult result =
      test::run_command(test::mpirun(2) + kTessera + "bench collectives --shard-mib 1 --repeats 2 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_figures(result.out, 4);
}

TEST(MpiBench, RefusesCollectivesOfOneRank) {
  const test::CommandResult result = test::run_command(kTessera + "bench collectives");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("mpirun --quiet -n 2 tessera bench collectives"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tessera
