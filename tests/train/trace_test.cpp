// Traces of real jobs, on ranks as threads.
#include "runtime/train/trace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "parallel/collective_log.h"
#include "runtime/train/trace_analysis.h"
#include "runtime/train/trace_file.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using nlohmann::json;

std::string read_gzip(const std::string& path) {
  std::string text(1 << 16, '\0'), all;
  gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  for (int bytes = 0; (bytes = gzread(file, text.data(), static_cast<unsigned>(text.size()))) > 0;)
    all.append(text.data(), static_cast<std::size_t>(bytes));
  EXPECT_EQ(gzclose_r(file), Z_OK);
  return all;
}

class TraceTest : public ::testing::Test {
 protected:
  // Model T on two ranks, one micro-batch each.
  JobConfig job(std::int64_t steps, std::optional<StepRange> traced) {
    JobConfig config = test::model_t(steps);
    config.batch.global_batch_size = 4;
    config.reproducibility.lanes = 2;
    config.data.train = {{test::write_tokens(directory_ / "tokens.bin", 2001, 64), 1.0}};
    config.trace.steps = traced;
    return config;
  }
  std::string run(const JobConfig& config, int world = 2) {
    path_ = directory_ / ("run" + std::to_string(++runs_));
    numbers_ = test::promised_numbers(test::run_job(config, world, 1, path_));
    return path_;
  }
  RankTrace trace_of(int rank) const { return read_rank_trace(RunDirectory(path_).trace(rank)); }
  bool traced() const { return std::filesystem::exists(RunDirectory(path_).trace_folder()); }
  static std::vector<std::string> windows(const RankTrace& trace) {
    std::vector<std::string> names;
    for (const TraceSpan& span : trace.spans) {
      if (span.trace_class == TraceClass::kWindow) names.push_back(span.name);
    }
    return names;
  }

  test::TemporaryDirectory directory_;
  std::string path_;
  std::vector<std::string> numbers_;
  int runs_ = 0;
};

using Names = std::vector<std::string>;

TEST_F(TraceTest, RecordsExactlyTheStepsThatWereAskedFor) {
  run(job(4, StepRange{2, 3}));
  for (const int rank : {0, 1}) {
    const RankTrace trace = trace_of(rank);
    EXPECT_EQ(windows(trace), (Names{"step 2", "step 3"}));
    for (const TraceSpan& span : trace.spans) {
      EXPECT_TRUE(span.step == 2 || span.step == 3) << span.name;
      EXPECT_GE(span.begin_ns, 0);
      EXPECT_GE(span.end_ns, span.begin_ns);
    }
    EXPECT_EQ(trace.header.rank, rank);
    EXPECT_EQ(trace.header.world_size, 2);
    EXPECT_EQ(trace.header.at.dp, rank);
    EXPECT_EQ(trace.header.host, "test");
    EXPECT_EQ(trace.header.clock, ClockOffset{}) << "threads share a clock";
  }
  EXPECT_EQ(trace_of(0).header.run, trace_of(1).header.run);
  EXPECT_EQ(trace_of(0).header.origin_ns, trace_of(1).header.origin_ns);
}

TEST_F(TraceTest, ChangesNoNumberOfTheTraining) {
  run(job(3, std::nullopt));
  EXPECT_FALSE(traced());
  const std::vector<std::string> plain = numbers_;
  run(job(3, StepRange{1, 3}));
  EXPECT_TRUE(traced());
  EXPECT_EQ(numbers_, plain);
}

TEST_F(TraceTest, OfARangeThatTheRunDoesNotComeToLeavesNoFile) {
  run(job(2, StepRange{3, 9}));
  EXPECT_FALSE(traced());
}

TEST_F(TraceTest, OfARangeBeyondTheEndIsWrittenAtTheEnd) {
  run(job(2, StepRange{2, 9}));
  EXPECT_EQ(windows(trace_of(1)), (Names{"step 2"}));
}

TEST_F(TraceTest, IsWrittenWhenTheRunIsAskedToStop) {
  std::atomic<int> asked = 0;
  path_ = directory_ / "stopped";
  const JobConfig config = job(50, StepRange{1, 40});
  EXPECT_EQ(test::run_until(config, 2, 1, path_, [&](int rank) { return rank == 1 && ++asked >= 3; }),
            ExitCode::kStopped);
  for (const int rank : {0, 1}) EXPECT_EQ(windows(trace_of(rank)), (Names{"step 1", "step 2", "step 3"}));
}

TEST_F(TraceTest, HoldsTheEvaluationsBetweenItsSteps) {
  JobConfig config = job(4, StepRange{2, 3});
  config.run.evaluate_every = 1;
  config.data.validation = {test::write_tokens(directory_ / "validation.bin", 201, 64)};
  run(config);
  const RankTrace trace = trace_of(0);
  EXPECT_EQ(windows(trace), (Names{"step 2", "evaluation after step 2", "step 3"}));
  const std::vector<StepTimes> steps = analyse(trace.spans);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].find(CollectiveOp::kAllGather, "evaluate"), nullptr);
  const auto evaluates = [](const TraceSpan& span) { return span.name == "evaluate head"; };
  EXPECT_GT(std::ranges::count_if(trace.spans, evaluates), 0);
}

TEST_F(TraceTest, NeedsNoFingerprints) {
  JobConfig config = job(2, StepRange{1, 2});
  config.collectives.fingerprint = "off";
  run(config);
  const StepTimes step = analyse(trace_of(1).spans).at(1);
  EXPECT_EQ(step.find(CollectiveOp::kAllGather, "forward")->num_calls, 3);  // root, two blocks
  EXPECT_GT(step.communication.waiting_ns(), 0);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/collectives/rank-00000.log"));
}

TEST_F(TraceTest, OfAnEarlierRunMovesToItsAttempt) {
  const JobConfig config = job(1, StepRange{1, 1});
  path_ = directory_ / "twice";
  test::run_job(config, 2, 1, path_);
  const std::string first = trace_of(0).header.run;
  test::run_job(config, 2, 1, path_);
  EXPECT_NE(trace_of(0).header.run, first);
  EXPECT_EQ(read_rank_trace(path_ + "/attempts/1/trace/rank-00000.json").header.run, first);
}

struct CountCase {
  FsdpConfig fsdp;
  int forward, backward, reductions;  // all_gathers of either phase, reduce_scatters
};

// 12 blocks and the root: 13 gathers forward and, where blocks were resharded, 12 again backward; one reduction per unit.
TEST_F(TraceTest, CountsAsManyCallsAsProgramAndLog) {
  std::vector<CountCase> cases = {{{.wrap = "root"}, 1, 0, 1}, {{.reshard_after_forward = "false"}, 13, 0, 13}};
  for (const std::string prefetch : {"backward_pre", "backward_post", "none"}) {
    for (const std::int64_t limit : {1, 2, 5}) {
      cases.push_back({{.backward_prefetch = prefetch, .max_inflight_all_gathers = limit}, 13, 12, 13});
    }
  }
  const auto calls = [](const StepTimes& step, CollectiveOp op, const char* phase) {
    const CommunicationTimes* times = step.find(op, phase);
    return times == nullptr ? 0 : times->num_calls;
  };
  for (const CountCase& expected : cases) {
    JobConfig config = job(3, StepRange{2, 3});
    config.model.num_layers = 12;
    config.fsdp = expected.fsdp;
    run(config);
    const json plan = json::parse(std::ifstream(path_ + "/plan.json"));
    const int gathers = expected.forward + expected.backward;
    EXPECT_EQ(plan["calls"]["all_gather"], gathers);
    EXPECT_EQ(plan["calls"]["reduce_scatter"], expected.reductions);
    for (const int rank : {0, 1}) {
      std::map<std::pair<std::int64_t, CollectiveOp>, std::int64_t> logged;
      for (const LoggedCall& call : read_collective_log(RunDirectory(path_).collective_log(rank)).calls)
        ++logged[{call.identity.step, call.identity.op}];
      const std::vector<StepTimes> steps = analyse(trace_of(rank).spans);
      ASSERT_EQ(steps.size(), 2U);
      for (const StepTimes& step : steps) {
        EXPECT_EQ(calls(step, CollectiveOp::kAllGather, "forward"), expected.forward);
        EXPECT_EQ(calls(step, CollectiveOp::kAllGather, "backward"), expected.backward);
        EXPECT_EQ(calls(step, CollectiveOp::kReduceScatter, "backward"), expected.reductions);
        EXPECT_EQ((logged[{step.step, CollectiveOp::kAllGather}]), gathers);
        EXPECT_EQ((logged[{step.step, CollectiveOp::kReduceScatter}]), expected.reductions);
      }
    }
  }
}

// Only a gather that is issued before a compute span can run during it. backward_pre issues one before every block's
// backward, which takes milliseconds here; of the 48 gathers, one at least begins while its rank computes.
TEST_F(TraceTest, ShowsThatOnlyBackwardPreHidesBackwardGathersBehindCompute) {
  for (const std::string policy : {"backward_pre", "backward_post", "none"}) {
    JobConfig config = test::model_t(2);
    config.model.num_layers = 6;
    config.model.hidden_size = 192;
    config.model.seq_len = 64;
    config.batch.global_batch_size = 8;
    config.data.train = {{test::write_tokens(directory_ / "tokens.bin", 2001, 64), 1.0}};
    config.fsdp.backward_prefetch = policy;
    config.trace.steps = StepRange{1, 2};
    run(config, 4);
    std::int64_t overlapped = 0, together = 0, forward = 0;
    for (int rank = 0; rank < 4; ++rank) {
      for (const StepTimes& step : analyse(trace_of(rank).spans)) {
        const CommunicationTimes* backward = step.find(CollectiveOp::kAllGather, "backward");
        EXPECT_EQ(backward->num_calls, 6);
        overlapped += backward->overlapped_ns;
        together += backward->union_ns;
        forward += step.find(CollectiveOp::kAllGather, "forward")->overlapped_ns;
      }
    }
    EXPECT_GT(together, 0);
    EXPECT_GT(forward, 0) << "the forward prefetches in all three";
    if (policy == "backward_pre") {
      EXPECT_GT(overlapped, 0);
    } else {
      EXPECT_EQ(overlapped, 0) << policy;
    }
  }
}

// --- The format, as docs/trace.md has it.

void expect_keys(const json& object, const std::set<std::string>& required, const std::set<std::string>& optional) {
  for (const std::string& key : required) EXPECT_TRUE(object.contains(key)) << key << " in " << object;
  for (const auto& [key, value] : object.items())
    EXPECT_TRUE(required.count(key) + optional.count(key) == 1) << key << " in " << object;
}

std::int64_t nanoseconds(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

void expect_metadata(const json& event) {
  expect_keys(event, {"name", "ph", "pid", "tid", "args"}, {});
  const std::string name = event["name"];
  if (name == "process_name" || name == "thread_name") {
    EXPECT_TRUE(event["args"]["name"].is_string());
  } else {
    EXPECT_TRUE(name == "process_sort_index" || name == "thread_sort_index") << name;
    EXPECT_TRUE(event["args"]["sort_index"].is_number_integer());
  }
}

void expect_complete(const json& event) {
  expect_keys(event, {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"}, {});
  EXPECT_TRUE(event["name"].is_string());
  EXPECT_TRUE(event["ts"].is_number_float());
  EXPECT_TRUE(event["dur"].is_number_float());
  EXPECT_GE(event["ts"].get<double>(), 0);
  EXPECT_GE(event["dur"].get<double>(), 0);
  const std::string category = event["cat"];
  static const std::set<std::string> categories = {"step", "compute", "communication", "wait", "data", "host"};
  EXPECT_EQ(categories.count(category), 1U) << category;
  const json& args = event["args"];
  EXPECT_TRUE(args["step"].is_number_integer());
  if (category == "communication") {
    expect_keys(args,
                {"step", "phase", "unit", "op", "group", "group_size", "sequence", "bytes", "queued_us", "waited_us"},
                {"micro_batch"});
    EXPECT_EQ(event["name"], args["op"].get<std::string>() + " " + args["unit"].get<std::string>());
    EXPECT_TRUE(args["bytes"].is_number_unsigned());
    EXPECT_LE(args["waited_us"].get<double>(), event["dur"].get<double>());
  } else {
    expect_keys(args, {"step"}, {"phase", "unit", "micro_batch"});
  }
}

TEST_F(TraceTest, IsOneFileOfTheTraceEventFormatForAllRanks) {
  JobConfig config = job(3, StepRange{2, 3});
  config.run.evaluate_every = 1;
  config.data.validation = {test::write_tokens(directory_ / "validation.bin", 201, 64)};
  run(config);
  const json merged = json::parse(read_gzip(RunDirectory(path_).merged_trace()));
  expect_keys(merged, {"displayTimeUnit", "tessera", "traceEvents"}, {});
  EXPECT_EQ(merged["displayTimeUnit"], "ns");
  expect_keys(merged["tessera"], {"version", "run", "world_size", "steps", "origin_ns", "ranks"}, {});
  EXPECT_EQ(merged["tessera"]["ranks"].size(), 2U);

  struct Thread {
    std::string name;
    std::int64_t last_begin = 0;
    std::vector<std::int64_t> open;  // ends of the spans around
  };
  std::map<std::pair<int, int>, Thread> threads;
  std::map<int, std::string> processes;
  std::set<std::string> windows;
  for (const json& event : merged["traceEvents"]) {
    ASSERT_TRUE(event["pid"].is_number_integer() && event["tid"].is_number_integer()) << event;
    Thread& thread = threads[{event["pid"], event["tid"]}];
    if (event["ph"] == "M") {
      expect_metadata(event);
      if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
      if (event["name"] == "thread_name") thread.name = event["args"]["name"];
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    expect_complete(event);
    if (event["cat"] == "step") windows.insert(event["name"].get<std::string>());
    const std::int64_t begin = nanoseconds(event["ts"]), end = begin + nanoseconds(event["dur"]);
    EXPECT_GE(begin, thread.last_begin) << event;
    thread.last_begin = begin;
    while (!thread.open.empty() && thread.open.back() <= begin) thread.open.pop_back();
    EXPECT_TRUE(thread.open.empty() || end <= thread.open.back()) << event << " ends outside what it began in";
    thread.open.push_back(end);
  }
  EXPECT_EQ(processes,
            (std::map<int, std::string>{{0, "rank 0 (dp 0, pp 0, tp 0) test"}, {1, "rank 1 (dp 1, pp 0, tp 0) test"}}));
  EXPECT_EQ(windows, (std::set<std::string>{"step 2", "evaluation after step 2", "step 3"}));
  ASSERT_EQ(threads.size(), 6U);
  for (const int rank : {0, 1}) {
    EXPECT_EQ((threads[{rank, 1}].name), "compute");
    EXPECT_EQ((threads[{rank, 2}].name), "gather");
    EXPECT_EQ((threads[{rank, 3}].name), "reduce");
  }
}

TEST_F(TraceTest, MergedHoldsTheEventsOfEveryRankFile) {
  run(job(2, StepRange{1, 2}));
  json expected = json::array();
  for (const int rank : {0, 1}) {
    const json file = json::parse(std::ifstream(RunDirectory(path_).trace(rank)));
    for (const json& event : file["traceEvents"]) expected.push_back(event);
    EXPECT_EQ(json::parse(read_gzip(RunDirectory(path_).merged_trace()))["tessera"]["ranks"][rank], file["tessera"]);
  }
  EXPECT_EQ(json::parse(read_gzip(RunDirectory(path_).merged_trace()))["traceEvents"], expected);
}

}  // namespace
}  // namespace tessera
