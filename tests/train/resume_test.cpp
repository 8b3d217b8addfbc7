// Stop anywhere, come back with another cluster: the bits are those of the run that was never interrupted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/train/trainer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Resume : public ::testing::Test {
 protected:
  JobConfig with_data(JobConfig config) {
    config.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, config.model.vocab_size), 1.0}};
    return config;
  }
  std::string fresh_directory() { return directory_ / ("run" + std::to_string(++runs_)); }

  // Runs until `steps` updates are made, then asks rank 0 to stop: the next update is the last.
  static ExitCode run_and_stop(const JobConfig& config, int world, const std::string& path, int steps) {
    std::atomic<int> asked = 0;
    return test::run_until(config, world, 1, path, [&](int rank) { return rank == 0 && ++asked > steps; });
  }
  // The numbers of all steps, which must be there once each.
  static std::vector<std::string> steps_of(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream file(path + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (!json::parse(line).contains("kind")) lines.push_back(line);
    return test::promised_numbers(lines);
  }
  static std::vector<std::string> checkpoints_of(const std::string& path) {
    std::vector<std::string> names;
    if (fs::exists(path + "/checkpoints"))
      for (const auto& entry : fs::directory_iterator(path + "/checkpoints")) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  // What the run ends with where it is refused: of rank 0.
  static std::string refusal(const JobConfig& config, int world, const std::string& path) {
    return test::run_to_errors(config, world, path).front();
  }

  test::TemporaryDirectory directory_;
  int runs_ = 0;
};

TEST_F(Resume, OnOtherRanksChangesNoBitOfModelTAndTheLlamaFamily) {
  for (JobConfig config : {test::model_t(15), test::llama_t(15)}) {
    config = with_data(config);
    const std::string whole = fresh_directory();
    test::run_job(config, 1, 1, whole);
    const std::vector<std::string> expected = steps_of(whole);
    ASSERT_EQ(expected.size(), 15U);
    for (const int world : {4, 1}) {
      const std::string path = fresh_directory();
      ASSERT_EQ(run_and_stop(config, 2, path, 4), ExitCode::kStopped);
      EXPECT_EQ(checkpoints_of(path), std::vector<std::string>{"step-00000005"});
      test::run_job(config, world, 1, path);
      EXPECT_EQ(steps_of(path), expected) << config.run.name << " on " << world;
    }
  }
}

TEST_F(Resume, EveryLayoutLoadsEveryOtherWithEmptyShards) {  // C7
  JobConfig config = test::model_t(8);
  config.model.vocab_size = 67;
  config.model.hidden_size = 12;
  config = with_data(config);
  const std::string whole = fresh_directory();
  test::run_job(config, 1, 1, whole);
  const std::vector<std::string> expected = steps_of(whole);
  struct Layout {
    int world;
    std::string strategy, wrap;
  };
  std::vector<Layout> layouts;
  for (const int world : {1, 2, 4}) {
    for (const char* strategy : {"full_shard", "shard_grad_op", "hybrid_shard", "no_shard"}) {
      if (world == 1 && std::string_view(strategy) == "hybrid_shard") continue;  // two ranks make a shard group
      for (const char* wrap : {"block", "root"}) layouts.push_back({world, strategy, wrap});
    }
  }
  // Each saves for one and loads from another, at distances that pair every number of ranks with every other.
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const Layout &from = layouts[i], &to = layouts[(i * 5 + 7) % layouts.size()];
    const std::string path = fresh_directory();
    config.fsdp.strategy = from.strategy;
    config.fsdp.wrap = from.wrap;
    ASSERT_EQ(run_and_stop(config, from.world, path, 2), ExitCode::kStopped);
    config.fsdp.strategy = to.strategy;
    config.fsdp.wrap = to.wrap;
    test::run_job(config, to.world, 1, path);
    EXPECT_EQ(steps_of(path), expected) << fmt::format("{} {} {} → {} {} {}", from.world, from.strategy, from.wrap,
                                                       to.world, to.strategy, to.wrap);
  }
}

TEST_F(Resume, OnOtherRanksChangesNoBitOfModelW) {
  const JobConfig config = with_data(test::model_w(3));
  const std::string whole = fresh_directory(), path = fresh_directory();
  test::run_job(config, 1, 2, whole);
  ASSERT_EQ(run_and_stop(config, 2, path, 0), ExitCode::kStopped);
  test::run_job(config, 4, 1, path);
  EXPECT_EQ(steps_of(path), steps_of(whole));
}

TEST_F(Resume, AsynchronousSavesChangeNoBitAndTheLastStepIsSaved) {
  for (const bool asynchronous : {true, false}) {
    JobConfig config = with_data(test::model_t(10));
    const std::string whole = fresh_directory(), path = fresh_directory();
    test::run_job(config, 2, 1, whole);
    config.checkpoint.every = 3;
    config.checkpoint.asynchronous = asynchronous;
    test::run_job(config, 2, 1, path);
    EXPECT_EQ(steps_of(path), steps_of(whole));
    const auto last = json::parse(std::ifstream(path + "/plan.json"));
    EXPECT_EQ(checkpoints_of(path).back(), "step-00000010");
    std::ifstream metrics(path + "/metrics.jsonl");
    std::string line;
    for (std::string next; std::getline(metrics, next);) line = next;
    EXPECT_EQ(json::parse(line)["memory_allocated_peak"], last["predicted_bytes"]);
  }
}

TEST_F(Resume, ASaveThatFailsEndsEveryRankByOneAgreedError) {
  const JobConfig config = with_data(test::model_t(9));
  const std::string path = fresh_directory();
  try {
    test::run_until(config, 2, 1, path, [&](int rank) {
      if (rank == 0) std::ofstream(path + "/checkpoints") << "in the way";
      return true;
    });
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code, ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find(path + "/checkpoints"), std::string::npos) << error.what();
  }
}

TEST_F(Resume, RetentionKeepsWhatItSays) {
  JobConfig config = with_data(test::model_t(10));
  config.checkpoint.every = 1;
  config.checkpoint.keep_latest = 2;
  config.checkpoint.keep_every = 4;
  const std::string path = fresh_directory();
  test::run_job(config, 2, 1, path);
  EXPECT_EQ(checkpoints_of(path),
            (std::vector<std::string>{"step-00000004", "step-00000008", "step-00000009", "step-00000010"}));
}

TEST_F(Resume, FromADamagedCheckpointFallsBackToTheOneBefore) {
  JobConfig config = with_data(test::model_t(12));
  config.checkpoint.every = 3;
  const std::string whole = fresh_directory(), path = fresh_directory();
  test::run_job(config, 1, 1, whole);
  ASSERT_EQ(run_and_stop(config, 2, path, 8), ExitCode::kStopped);
  std::fstream shard(path + "/checkpoints/step-00000009/shard-00000-of-00002.safetensors",
                     std::ios::in | std::ios::out | std::ios::binary);
  shard.seekp(-8, std::ios::end);
  shard.put('\x55');
  shard.close();
  fs::remove(path + "/checkpoints/step-00000006/manifest.json");
  test::run_job(config, 4, 1, path);
  EXPECT_EQ(steps_of(path), steps_of(whole));
  const std::vector<std::string> names = checkpoints_of(path);
  EXPECT_EQ(std::ranges::count_if(names, [](const auto& name) { return name.starts_with(".set-aside-"); }), 2);
  std::string text;  // ranks that are threads share one log
  for (const auto& entry : fs::directory_iterator(path + "/logs")) {
    std::ifstream log(entry.path());
    text.append(std::istreambuf_iterator<char>(log), {});
  }
  EXPECT_NE(text.find("checkpoint step-00000009 is passed over: "), std::string::npos) << text;
  EXPECT_NE(text.find("checkpoint step-00000006 is passed over: "), std::string::npos) << text;
  EXPECT_NE(text.find("resumed step 3, dp 2 → 4, certificate ok"), std::string::npos) << text;
}

TEST_F(Resume, KeysThatDecideWhatIsTrainedAreRefusedByNameUnlessAllowed) {
  const JobConfig config = with_data(test::model_t(6));
  const std::string path = fresh_directory();
  ASSERT_EQ(run_and_stop(config, 2, path, 1), ExitCode::kStopped);
  JobConfig other = config;
  other.model.activation = "relu";
  other.optimizer.eps = 1e-6;
  other.data.shuffle = false;
  other.fsdp.strategy = "no_shard";
  const std::string line = refusal(other, 2, path);
  EXPECT_TRUE(line.starts_with("2 resume from ")) << line;
  for (const char* item : {"data.shuffle: true → false", "model.activation: gelu_tanh → relu", "optimizer.eps: "})
    EXPECT_NE(line.find(item), std::string::npos) << line;
  EXPECT_EQ(line.find("fsdp.strategy"), std::string::npos) << line;
  EXPECT_EQ(test::run_to_errors(other, 2, path, {"model.activation", "optimizer.eps", "data.shuffle"}),
            (std::vector<std::string>{"", ""}));
}

TEST_F(Resume, OtherFilesUnderTheSameNameAreRefused) {
  const JobConfig config = with_data(test::model_t(6));
  const std::string path = fresh_directory();
  ASSERT_EQ(run_and_stop(config, 2, path, 1), ExitCode::kStopped);
  test::write_tokens(directory_ / "train.bin", 5001, config.model.vocab_size, 9);
  EXPECT_NE(refusal(config, 2, path).find("data.train: its files are not those of the saved run"), std::string::npos);
}

TEST_F(Resume, NeverIsRefusedWhereARunIsAndAFinishedRunIsLeftAlone) {
  JobConfig config = with_data(test::model_t(4));
  config.checkpoint.every = 2;
  const std::string path = fresh_directory();
  const std::vector<std::string> first = test::run_job(config, 2, 1, path);
  EXPECT_EQ(test::run_job(config, 2, 1, path), first) << "finished: nothing is written";
  EXPECT_FALSE(fs::exists(path + "/attempts"));
  JobConfig never = config;
  never.checkpoint.resume = "never";
  EXPECT_TRUE(refusal(never, 2, path).starts_with("2 run directory ")) << refusal(never, 2, path);
  config.run.steps = 6;
  test::run_job(config, 1, 1, path);
  EXPECT_EQ(steps_of(path).size(), 6U);
}

TEST_F(Resume, FromAnotherRunsFolderLeavesThatAlone) {
  const JobConfig config = with_data(test::model_t(8));
  const std::string whole = fresh_directory(), from = fresh_directory(), into = fresh_directory();
  test::run_job(config, 1, 1, whole);
  ASSERT_EQ(run_and_stop(config, 2, from, 2), ExitCode::kStopped);
  const std::vector<std::string> before = steps_of(from);
  for (const std::string& name : {from, from + "/checkpoints/step-00000003"}) {
    JobConfig named = config;
    named.checkpoint.resume = name;
    const std::string path = fresh_directory();
    test::run_job(named, 4, 1, path);
    const std::vector<std::string> expected = steps_of(whole), made = steps_of(path);
    EXPECT_EQ(made, std::vector<std::string>(expected.begin() + 3, expected.end()));
    EXPECT_TRUE(refusal(named, 2, path).starts_with("2 run directory ")) << "it holds a run now";
  }
  EXPECT_EQ(steps_of(from), before);
}

TEST_F(Resume, LanesAreThoseOfTheFirstStart) {
  JobConfig config = with_data(test::model_t(6));
  config.reproducibility.lanes.reset();
  const std::string whole = fresh_directory(), path = fresh_directory();
  test::run_job(config, 2, 1, whole);
  ASSERT_EQ(run_and_stop(config, 2, path, 1), ExitCode::kStopped);
  EXPECT_THROW(test::run_job(config, 4, 1, path), ConfigError);  // dp 4 above lanes 2
  test::run_job(config, 1, 1, path);
  EXPECT_EQ(steps_of(path), steps_of(whole));
}

TEST_F(Resume, AStopDuringAnEvaluationLosesNone) {
  JobConfig config = with_data(test::model_t(5));
  config.run.evaluate_every = 1;
  config.data.validation = {test::write_tokens(directory_ / "validation.bin", 3 * 8 * 16 + 1, 64)};
  const std::string whole = fresh_directory();
  const std::vector<std::string> expected = test::promised_numbers(test::run_job(config, 1, 1, whole));
  for (const int asked : {2, 5, 6}) {  // in the evaluation before step 1; in step 1; in the evaluation after it
    const std::string path = fresh_directory();
    ASSERT_EQ(run_and_stop(config, 2, path, asked), ExitCode::kStopped);
    std::vector<std::string> numbers = test::promised_numbers(test::run_job(config, 4, 1, path));
    std::erase_if(numbers, [](const std::string& line) { return line.starts_with("start step=1"); });
    if (asked == 2) numbers.erase(numbers.begin());  // it starts at step 0 twice
    EXPECT_EQ(numbers, expected) << asked;
  }
}

TEST_F(Resume, SkippedUpdatesKeepTheirBatches) {
  JobConfig config = with_data(test::model_t(8));
  config.chaos = {{.rank = 0, .step = 3, .fault = "nan_loss"}};
  const auto counters = [](const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream file(path + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const json event = json::parse(line);
      if (event.value("kind", "") != "start")
        lines.push_back(fmt::format("{} {} {} {}", event.value("kind", "step"), event["step"].get<int>(),
                                    event.value("tokens_seen", 0), event.value("skipped_steps", 0)));
    }
    return lines;
  };
  const std::string whole = fresh_directory();
  test::run_job(config, 2, 1, whole);
  ASSERT_EQ(counters(whole).size(), 9U);  // eight updates and the one that was skipped
  for (const int steps : {1, 2, 5}) {     // before it, in the attempt itself, after it
    const std::string path = fresh_directory();
    ASSERT_EQ(run_and_stop(config, 2, path, steps), ExitCode::kStopped);
    test::run_job(config, 1, 1, path);
    EXPECT_EQ(steps_of(path), steps_of(whole)) << steps;
    EXPECT_EQ(counters(path), counters(whole)) << steps;
  }
}

// Adam's corrections count updates: from 1 again, or one off, every weight of step 6 would be another.
TEST_F(Resume, TheStepCounterGoesOn) {  // C8
  JobConfig config = with_data(test::model_t(6));
  const std::string whole = fresh_directory(), path = fresh_directory();
  config.checkpoint.every = 1;
  test::run_job(config, 1, 1, whole);
  ASSERT_EQ(run_and_stop(config, 2, path, 4), ExitCode::kStopped);
  const json manifest = json::parse(std::ifstream(path + "/checkpoints/step-00000005/manifest.json"));
  EXPECT_EQ(manifest["training"]["schedule"]["updates"], 5);
  test::run_job(config, 1, 1, path);
  EXPECT_EQ(steps_of(path), steps_of(whole));
}

}  // namespace
}  // namespace tessera
