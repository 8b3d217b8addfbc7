// `tessera plan …` as a user types it.
#include "tools/plan_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/tool_command.h"

namespace tessera {
namespace {

const std::string kConfigs = std::string(TESSERA_SOURCE_DIR) + "/configs/";

class PlanCommand : public testing::Test {
 protected:
  // The exit code; what was printed on stdout goes to out_, the line of an error to error_.
  int run(std::vector<std::string> words) {
    words.insert(words.begin(), "plan");
    const test::ToolResult result = test::run_tool(add_plan_command, std::move(words));
    out_ = result.out;
    error_ = result.error;
    return result.code;
  }
  bool printed(const std::string& text) const { return out_.find(text) != std::string::npos; }
  nlohmann::json json() const { return nlohmann::json::parse(out_); }

  std::string out_, error_;
};

TEST_F(PlanCommand, PrintsMeshMemoryTimelineAndCollectives) {
  ASSERT_EQ(run({kConfigs + "gpt2-124m.yaml", "--ranks", "8"}), 0);
  EXPECT_TRUE(
      printed("mesh    dp 8 × pp 1 × tp 1 | lanes 8 | 16 micro-batches per rank\ngroups  world of 8, dp of 8\n"))
      << out_;
  for (const char* part :
       {"memory of a rank", "  gathered", "timeline of a step", " peak\n", "all_gather      dp:0", "12 × block.0 …"}) {
    EXPECT_TRUE(printed(part)) << part << out_;
  }
  EXPECT_FALSE(printed("fits")) << "no limit was named";
  EXPECT_FALSE(printed("agree tokens")) << "the program is printed for a rank that was named";
}

TEST_F(PlanCommand, SaysThatAllRanksMatchAndCannotDeadlock) {
  ASSERT_EQ(
      run({kConfigs + "tiny.yaml", "--ranks", "4", "--set", "fsdp.strategy=hybrid_shard", "--ranks-per-host", "2"}), 0);
  EXPECT_TRUE(printed("proof   4 ranks match; no deadlock (1 class, ")) << out_;
  ASSERT_EQ(run({kConfigs + "tiny.yaml", "--ranks", "4", "--json"}), 0);
  EXPECT_EQ(json()["proof"]["training"]["ok"], true);
  EXPECT_EQ(json()["proof"]["evaluation"]["num_ranks"], 4);
}

TEST_F(PlanCommand, RatesAreFiniteAndOfASimulation) {
  for (const char* option : {"--tflops", "--gbps", "--call-us", "--issue-us"}) {
    EXPECT_EQ(run({kConfigs + "tiny.yaml", "--simulate", option, "nan"}), 2) << option;
    EXPECT_EQ(run({kConfigs + "tiny.yaml", option, "5"}), 2) << option << " without --simulate";
  }
}

TEST_F(PlanCommand, ThousandsOfRanksAreProven) {
  ASSERT_EQ(run({kConfigs + "gpt2-124m.yaml", "--ranks", "4096", "--ranks-per-host", "8", "--set",
                 "reproducibility.lanes=4096", "--set", "batch.global_batch_size=16384", "--set",
                 "fsdp.strategy=hybrid_shard"}),
            0);
  EXPECT_TRUE(printed("proof   4096 ranks match; no deadlock")) << out_;
}

TEST_F(PlanCommand, ShowsWhatChaosMakesOfTheListAndEndsWithTheCodeOfAMismatch) {
  ASSERT_EQ(
      run({kConfigs + "tiny.yaml", "--ranks", "4", "--set", "chaos=[{rank: 1, step: 5, fault: swap_collectives}]"}), 4);
  EXPECT_TRUE(printed("proof   4 ranks match; no deadlock")) << out_;
  EXPECT_TRUE(printed(
      "chaos   step 5: 4 ranks do not match\n          call 1 of dp:0/gather: ranks 0, 2, 3 make all_gather block.0 "
      "(forward), rank 1 makes all_gather block.1 (forward)\n"))
      << out_;
}

TEST_F(PlanCommand, PrintsTheProgramOfARank) {
  ASSERT_EQ(run({kConfigs + "tiny.yaml", "--ranks", "2", "--rank", "1"}), 0);
  EXPECT_TRUE(printed("step program of logical rank 1: dp 2")) << out_;
  EXPECT_TRUE(printed("   0 agree tokens")) << out_;
  EXPECT_EQ(run({kConfigs + "tiny.yaml", "--ranks", "2", "--rank", "2"}), 2);
  EXPECT_EQ(error_, "--rank: 2 is not one of 2 ranks");
}

TEST_F(PlanCommand, SaysWhetherARankFits) {
  ASSERT_EQ(run({kConfigs + "gpt2-124m.yaml", "--ranks", "8", "--memory", "80GiB"}), 0);
  EXPECT_TRUE(printed("fits 80 GiB: yes, ")) << out_;
  EXPECT_TRUE(printed(" GiB at forward backward head\n")) << out_;
  ASSERT_EQ(run({kConfigs + "gpt2-124m.yaml", "--ranks", "8", "--set", "device.memory_limit=2GiB"}), 0);
  EXPECT_TRUE(printed("fits 2 GiB: no, ")) << out_;
  EXPECT_TRUE(printed("; hint: batch.micro_batch_size: 2 needs ")) << out_;
  EXPECT_EQ(run({kConfigs + "gpt2-124m.yaml", "--ranks", "8", "--memory", "much"}), 2);
  EXPECT_EQ(error_, "--memory: found 'much', expected bytes, as 80GiB");
}

TEST_F(PlanCommand, JsonHoldsWhatTheTextShows) {
  ASSERT_EQ(run({kConfigs + "tiny.yaml", "--ranks", "2", "--memory", "1KiB", "--simulate", "--json"}), 0);
  const nlohmann::json plan = json();
  EXPECT_EQ(plan["limit"]["bytes"], 1024);
  EXPECT_FALSE(plan["limit"]["fits"]);
  EXPECT_TRUE(plan["limit"]["fix"].is_string());
  std::int64_t at_peak = 0;
  for (const auto& category : plan["memory"]["step"]["categories"]) at_peak += category["at_peak"].get<std::int64_t>();
  EXPECT_EQ(at_peak, plan["memory"]["step"]["peak"]);
  EXPECT_EQ(plan["memory"]["step"]["peak"], plan["predicted_bytes"]);
  EXPECT_LE(plan["memory"]["step"]["timeline"].size(), 24U);
  EXPECT_EQ(plan["traffic"][1]["calls"], plan["calls"]["all_gather"]);
  EXPECT_EQ(plan["simulated"].size(), 3U);
}

TEST_F(PlanCommand, SimulatesWithAndWithoutTheRateLimit) {
  ASSERT_EQ(run({kConfigs + "gpt2-124m.yaml", "--ranks", "8", "--simulate", "--tflops", "50", "--json"}), 0);
  const nlohmann::json limited = json()["simulated"][0], unlimited = json()["simulated"][1];
  EXPECT_EQ(limited["rate_limit"], 2);
  EXPECT_EQ(unlimited["rate_limit"], 0);
  EXPECT_EQ(limited["flops_per_second"], 50e12);
  EXPECT_EQ(limited["allocated_peak"], unlimited["allocated_peak"]);
  EXPECT_LT(limited["reserved_peak"], unlimited["reserved_peak"]);
  EXPECT_GE(limited["step_seconds"], unlimited["step_seconds"]);
}

TEST_F(PlanCommand, ThousandsOfRanksTakeAFewLines) {
  for (const char* strategy : {"full_shard", "hybrid_shard", "no_shard"}) {
    ASSERT_EQ(run({kConfigs + "gpt2-124m.yaml", "--ranks", "4096", "--ranks-per-host", "8", "--set",
                   "reproducibility.lanes=4096", "--set", "batch.global_batch_size=16384", "--set",
                   std::string("fsdp.strategy=") + strategy}),
              0)
        << error_;
    EXPECT_LT(std::ranges::count(out_, '\n'), 60);
    if (std::string(strategy) == "hybrid_shard") {
      EXPECT_TRUE(printed("groups  world of 4096, dp of 4096, 512 × shard of 8, 8 × replica of 512\n")) << out_;
    }
  }
}

}  // namespace
}  // namespace tessera
