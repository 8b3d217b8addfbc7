#include "tools/trace_command.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/trace_file.h"
#include "tests/support/temporary_directory.h"
#include "tools/help_command.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMs = 1'000'000;

TraceSpan span(TraceClass trace_class, std::int64_t step, std::int64_t begin_ns, std::int64_t end_ns) {
  return {.trace_class = trace_class, .name = "span", .step = step, .begin_ns = begin_ns, .end_ns = end_ns};
}

TraceSpan gather(std::int64_t step, const std::string& phase, std::int64_t begin_ns, std::int64_t end_ns) {
  TraceSpan span = {.trace_class = TraceClass::kCommunication,
                    .stream = StreamId::kGather,
                    .name = "all_gather block.0",
                    .what = "block.0",
                    .phase = phase,
                    .step = step,
                    .begin_ns = begin_ns,
                    .end_ns = end_ns};
  span.call = {.op = CollectiveOp::kAllGather, .group = "dp:0", .group_size = 2, .bytes = 1'500'000, .waited_ns = kMs};
  return span;
}

class TraceCommand : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(directory_.trace_folder()); }

  // Steps 5 and 6 of 100 ms each. Rank r computes for 40 ms and gathers for 20 ms forward, 5 · (r + 1) of them behind the
  // compute, and for 10 ms backward, behind nothing.
  RankTrace trace_of(int rank) const {
    RankTrace trace;
    trace.header = {.run = "1", .rank = rank, .world_size = 2, .at = {.dp = rank}, .host = "a", .steps = {5, 6}};
    if (rank == 1) trace.header.clock = {.offset_ns = -4, .uncertainty_ns = 12'340};
    for (const std::int64_t step : {5, 6}) {
      const std::int64_t start = (step - 5) * 200 * kMs, hidden = 5 * (rank + 1) * kMs;
      trace.spans.push_back(span(TraceClass::kWindow, step, start, start + 100 * kMs));
      trace.spans.push_back(span(TraceClass::kCompute, step, start + 10 * kMs, start + 50 * kMs));
      trace.spans.push_back(gather(step, "forward", start + 50 * kMs - hidden, start + 70 * kMs - hidden));
      trace.spans.push_back(gather(step, "backward", start + 80 * kMs, start + 90 * kMs));
    }
    return trace;
  }
  void write(int rank) const { write_rank_trace(directory_.trace(rank), trace_of(rank)); }

  struct Result {
    std::string out, error;  // the error's line
  };
  Result trace(std::vector<std::string> arguments) const {
    CLI::App app;
    int exit_code = -1;
    Result result;
    add_trace_command(app, exit_code);
    arguments.insert(arguments.begin(), {"trace", directory_.path()});
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the last argument first
    ::testing::internal::CaptureStdout();
    try {
      app.parse(arguments);
      EXPECT_EQ(exit_code, 0);
    } catch (const DataError& error) {
      result.error = error.line();
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
    result.out = ::testing::internal::GetCapturedStdout();
    return result;
  }
  // The words of the line that begins with `label`.
  static std::vector<std::string> row(const std::string& text, const std::string& label) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(label)) continue;
      std::istringstream cells(line.substr(label.size()));
      return {std::istream_iterator<std::string>(cells), {}};
    }
    return {};
  }

  test::TemporaryDirectory temporary_;
  RunDirectory directory_ = RunDirectory(temporary_.path().string());
};

using Cells = std::vector<std::string>;

TEST_F(TraceCommand, ShowsTheMeanStepOfEachRankAndKindOfCollective) {
  write(0);
  write(1);
  const Result result = trace({});
  EXPECT_EQ(result.error, "");
  EXPECT_TRUE(
      result.out.starts_with("steps 5–6, 2 of 2 ranks; milliseconds, mean per step; clocks of ranks are within "
                             "12.3 us of rank 0's\n"))
      << result.out;
  // step, compute, wait, idle | communication, overlapped, share, exposed, for peers, moving
  EXPECT_EQ(row(result.out, "rank 0"), (Cells{"100.000", "40.000", "0.000", "35.000", "|", "30.000", "5.000", "16.7%",
                                              "25.000", "2.000", "28.000"}));
  EXPECT_EQ(row(result.out, "rank 1"), (Cells{"100.000", "40.000", "0.000", "40.000", "|", "30.000", "10.000", "33.3%",
                                              "20.000", "2.000", "28.000"}));
  EXPECT_EQ(row(result.out, "mean"), (Cells{"100.000", "40.000", "0.000", "37.500", "|", "30.000", "7.500", "25.0%",
                                            "22.500", "2.000", "28.000"}));
  EXPECT_EQ(row(result.out, "all_gather     forward"),
            (Cells{"1", "1.500", "|", "20.000", "7.500", "37.5%", "12.500", "1.000", "19.000"}));
  EXPECT_EQ(row(result.out, "all_gather     backward"),
            (Cells{"1", "1.500", "|", "10.000", "0.000", "0.0%", "10.000", "1.000", "9.000"}));
}

TEST_F(TraceCommand, ShowsOneStepOrOneRank) {
  write(0);
  write(1);
  const std::string of_rank = trace({"--rank", "1"}).out;
  EXPECT_TRUE(of_rank.starts_with("steps 5–6, rank 1 of 2;")) << of_rank;
  EXPECT_FALSE(row(of_rank, "step 5").empty());
  EXPECT_FALSE(row(of_rank, "step 6").empty());
  EXPECT_TRUE(row(of_rank, "rank 0").empty());
  const std::string of_step = trace({"--step", "6"}).out;
  EXPECT_TRUE(of_step.starts_with("step 6, 2 of 2 ranks")) << of_step;
  EXPECT_EQ(trace({"--step", "7"}).error, "trace: step 7 was not traced");
  EXPECT_EQ(trace({"--rank", "2"}).error, "trace: rank 2 has no readable file");
}

TEST_F(TraceCommand, GivesEverythingAsJson) {
  write(0);
  write(1);
  const auto json = nlohmann::json::parse(trace({"--json"}).out);
  EXPECT_EQ(json["world_size"], 2);
  EXPECT_EQ(json["steps"], nlohmann::json({5, 6}));
  EXPECT_EQ(json["missing"], nlohmann::json::array());
  EXPECT_NEAR(json["ranks"][1]["clock_uncertainty_seconds"].get<double>(), 12.34e-6, 1e-12);
  const auto& step = json["ranks"][1]["steps"][0];
  EXPECT_EQ(step["step"], 5);
  EXPECT_NEAR(step["communication"]["exposed_seconds"].get<double>(), 0.02, 1e-12);
  EXPECT_EQ(step["collectives"][0]["op"], "all_gather");
  EXPECT_EQ(step["collectives"][0]["phase"], "forward");
  EXPECT_EQ(step["collectives"][0]["calls"], 1);
  EXPECT_EQ(step["collectives"][0]["bytes"], 1'500'000);
}

TEST_F(TraceCommand, NamesFilesThatAreMissingOrDamagedAndShowsTheOthers) {
  write(0);
  Result result = trace({});
  EXPECT_EQ(result.error,
            "trace " + directory_.path() + ": no file of rank 1; hint: what is shown is of the other ranks");
  EXPECT_FALSE(row(result.out, "rank 0").empty());
  EXPECT_EQ(nlohmann::json::parse(trace({"--json"}).out)["missing"], nlohmann::json({1}));

  write(1);
  fs::resize_file(directory_.trace(1), fs::file_size(directory_.trace(1)) / 2);
  result = trace({});
  EXPECT_NE(result.error.find(directory_.trace(1) + ": damaged: line "), std::string::npos) << result.error;
  EXPECT_FALSE(row(result.out, "rank 0").empty());
  EXPECT_EQ(nlohmann::json::parse(trace({"--json"}).out)["damaged"][0]["path"], directory_.trace(1));

  RankTrace stranger = trace_of(1);
  stranger.header.run = "2";
  write_rank_trace(directory_.trace(1), stranger);
  EXPECT_NE(trace({}).error.find("of another run than that of rank 0"), std::string::npos);

  fs::copy_file(directory_.trace(0), directory_.trace(1), fs::copy_options::overwrite_existing);
  EXPECT_NE(trace({}).error.find(directory_.trace(1) + ": holds the trace of rank 0"), std::string::npos);
}

TEST_F(TraceCommand, NumbersThatNoRunHasAreDamage) {
  const auto error_of = [&](const std::function<void(RankTrace&)>& change) {
    RankTrace changed = trace_of(0);
    change(changed);
    write_rank_trace(directory_.trace(0), changed);
    return trace({}).error;
  };
  const std::string damaged = directory_.trace(0) + ": damaged: line ";
  EXPECT_NE(error_of([](RankTrace& t) { t.header.world_size = 100'000'000; }).find(damaged), std::string::npos);
  EXPECT_NE(error_of([](RankTrace& t) { t.header.rank = 2; }).find(damaged), std::string::npos);
  EXPECT_NE(error_of([](RankTrace& t) { t.spans[1].end_ns = t.spans[1].begin_ns - 1; }).find(damaged),
            std::string::npos);
  EXPECT_NE(error_of([](RankTrace& t) { t.spans[1].step = -3; }).find(damaged), std::string::npos);
  write(0);
  std::ofstream(directory_.trace(0), std::ios::app) << "more\n";
  EXPECT_NE(trace({}).error.find("damaged: goes on after line "), std::string::npos);
}

TEST_F(TraceCommand, MistakesAreErrorsOfTheirKind) {
  EXPECT_EQ(trace({}).error,
            "trace " + directory_.path() + ": holds no trace; hint: trace: {steps: [first, last]} in the job");
  EXPECT_THROW(trace({"--rank", "-1"}), CLI::ParseError);
  EXPECT_THROW(trace({"--step", "0"}), CLI::ParseError);
  fs::remove_all(directory_.path());
  EXPECT_THROW(trace({}), ConfigError);
}

TEST_F(TraceCommand, HelpFitsOnAScreen) {
  CLI::App app;
  int exit_code = 0;
  style_help(app);
  add_trace_command(app, exit_code);
  const std::string help = app.get_subcommand("trace")->help();
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 24);
}

}  // namespace
}  // namespace tessera
