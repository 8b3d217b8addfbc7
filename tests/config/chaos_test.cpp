// chaos: a list of faults, each with the keys that its fault takes and no others.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/config/chaos_faults.h"
#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

// The one problem of a job with this item, without the file's name and line; "" where it loads.
std::string problem(const std::string& item) {
  const Lines lines = problems_of(model_t_and("chaos: [{" + item + "}]\n"));
  if (lines.empty()) return "";
  return lines.size() == 1 ? lines[0].substr(lines[0].find(' ') + 1) : "problems: " + std::to_string(lines.size());
}

JobConfig load(const std::string& items, const std::string& more = "") {
  const ConfigResult result = check_config_text(model_t_and("chaos: [" + items + "]\n" + more), "job.yaml");
  EXPECT_TRUE(result.problems.empty()) << result.problems[0].line_text();
  return result.config;
}

TEST(Chaos, LoadsAFaultWithItsKeysAndWritesItBack) {
  const JobConfig job = load(
      "{rank: 1, step: 5, fault: swap_collectives}, {rank: 0, step: 7, fault: wrong_count, op: reduce_scatter}, "
      "{rank: 3, step: 1, fault: hang, seconds: 2.5}");
  EXPECT_EQ(job.chaos, (std::vector<ChaosFault>{{.rank = 1, .step = 5, .fault = "swap_collectives"},
                                                {.rank = 0, .step = 7, .fault = "wrong_count", .op = "reduce_scatter"},
                                                {.rank = 3, .step = 1, .fault = "hang", .seconds = 2.5}}));
  for (const std::string& text : {to_yaml(job), to_json(job)}) {
    const ConfigResult again = check_config_text(text, "job.yaml");
    EXPECT_TRUE(again.problems.empty()) << text;
    EXPECT_EQ(again.config, job) << text;
  }
  EXPECT_EQ(problems_of(kModelT, {"chaos=[{rank: 1, step: 5, fault: kill}]"}), Lines{});
}

TEST(Chaos, NeedsRankStepAndFault) {
  EXPECT_EQ(problem("step: 5, fault: kill"), "chaos[0].rank: missing, expected an integer from 0 to 999999");
  EXPECT_EQ(problem("rank: 1, fault: kill"), "chaos[0].step: missing, expected an integer from 1 to 1000000000000");
  EXPECT_EQ(problem("rank: 1, step: 0, fault: kill"),
            "chaos[0].step: found 0, expected an integer from 1 to 1000000000000");
  EXPECT_EQ(problem("rank: 1, step: 1, fault: kill, sevonds: 1"), "chaos[0].sevonds: unknown key; hint: seconds");
  EXPECT_EQ(problem("rank: 1, step: 1, fault: killl").substr(0, 46), "chaos[0].fault: found killl, expected swap_col");
  EXPECT_EQ(problems_of(model_t_and("chaos: [kill]\n")),
            Lines{"job.yaml:18: chaos[0]: found kill, expected {rank, step, fault, op, seconds}"});
}

TEST(Chaos, RefusesKeysWithoutEffect) {
  EXPECT_EQ(problem("rank: 1, step: 5, fault: kill, seconds: 2"), "chaos[0].seconds: has no effect with fault kill");
  EXPECT_EQ(problem("rank: 1, step: 5, fault: throw, op: all_gather"), "chaos[0].op: has no effect with fault throw");
  EXPECT_EQ(problem("rank: 1, step: 5, fault: wrong_root, op: broadcast"),
            "chaos[0].op: has no effect with fault wrong_root");
  EXPECT_EQ(problem("rank: 1, step: 5, fault: wrong_reduce_op, op: all_gather"),
            "chaos[0].op: all_gather has no effect with fault wrong_reduce_op; hint: reduce_scatter or all_reduce");
  EXPECT_EQ(problem("rank: 1, step: 5, fault: slow"), "chaos[0].seconds: missing, fault slow needs it");
  EXPECT_EQ(problem("rank: 1, step: 5, fault: flip_bit, seconds: 1"),
            "chaos[0].seconds: has no effect with fault flip_bit");
  EXPECT_EQ(problem("rank: 1, step: 5, fault: slow, seconds: 0").substr(0, 24), "chaos[0].seconds: found ");
}

TEST(Chaos, EveryFaultLoads) {
  for (const config::FaultKind& kind : config::fault_kinds()) {
    const std::string seconds = kind.seconds == config::FaultKind::Seconds::kRequired ? ", seconds: 1" : "";
    EXPECT_EQ(problem("rank: 0, step: 1, fault: " + std::string(kind.name) + seconds), "") << kind.name;
    if (kind.ops.size() < 2) continue;
    for (const std::string_view op : kind.ops)
      EXPECT_EQ(problem("rank: 0, step: 1, fault: " + std::string(kind.name) + ", op: " + std::string(op)), "");
  }
}

TEST(Chaos, ARankBeyondTheWorldIsRefusedWhenRanksAreKnown) {
  const JobConfig job = load("{rank: 0, step: 1, fault: kill}, {rank: 2, step: 5, fault: kill}");
  EXPECT_EQ(resolve(job, 4).dp, 4);
  try {
    resolve(job, 2);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.line(), "chaos[1].rank: 2 is not one of the 2 ranks");
  }
}

TEST(Chaos, OneRankAloneCannotDifferFromAnybody) {
  EXPECT_EQ(resolve(load("{rank: 0, step: 1, fault: wrong_count}"), 1).dp, 1) << "the program check sees it";
  EXPECT_THROW(resolve(load("{rank: 0, step: 1, fault: wrong_root}"), 1), ConfigError);
  EXPECT_THROW(resolve(load("{rank: 0, step: 1, fault: wrong_count}", "collectives: {program_check: false}\n"), 1),
               ConfigError);
}

TEST(Chaos, IsExplainedAndInTheSchemaWithItsItems) {
  const std::string text = explain_key("chaos");
  EXPECT_NE(text.find("items     chaos[].rank, chaos[].step, chaos[].fault, chaos[].op, chaos[].seconds"),
            std::string::npos)
      << text;
  const auto items = nlohmann::json::parse(json_schema())["properties"]["chaos"]["items"];
  EXPECT_EQ(items["additionalProperties"], false);
  EXPECT_EQ(items["required"], (std::vector<std::string>{"rank", "step", "fault"}));
  EXPECT_EQ(items["properties"]["fault"]["enum"].size(), config::fault_kinds().size());
}

}  // namespace
}  // namespace tessera::testing
