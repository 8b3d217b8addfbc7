// Stop anywhere, come back with another cluster: the bits are those of the run that was never interrupted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/reader.h"
#include "runtime/config/load.h"
#include "runtime/train/resume.h"
#include "runtime/train/trainer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/run_files.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::checkpoints_of;
using test::steps_of;

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
  JobConfig config = test::model_t(13);
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
  // Each saves for one and loads from another, at distances that pair every number of ranks with every other; ten more steps follow.
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
  const JobConfig config = with_data(test::model_w(2));
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
  const std::string text = test::logs_of(path);
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

// What the next step's own forward finds (asynchronous saves) is what a forward alone finds (saves that are waited for), in every layout, to the bit.
TEST_F(Resume, SavesThatAreWaitedForKnowTheLossOfTheNextStep) {
  JobConfig config = with_data(test::model_t(7));
  config.checkpoint.every = 1;
  config.checkpoint.keep_latest = 10;
  const auto losses_of = [](const std::string& path) {
    std::map<std::string, double> losses;
    for (const std::string& name : checkpoints_of(path)) {
      const json manifest = json::parse(std::ifstream(path + "/checkpoints/" + name + "/manifest.json"));
      const json& loss = manifest["training"]["certificate"]["loss"];
      losses[name] = loss.is_number() ? loss.get<double>() : -1.0;
    }
    return losses;
  };
  const std::string whole = fresh_directory();
  test::run_job(config, 2, 1, whole);
  const std::map<std::string, double> expected = losses_of(whole);
  ASSERT_EQ(expected.size(), 7U);
  for (const auto& [name, loss] : expected) EXPECT_NEAR(loss, 4.16, 0.2) << name << ": ln 64";
  struct Layout {
    int world;
    const char* strategy;
  };
  for (const auto& [world, strategy] :
       {Layout{1, "no_shard"}, Layout{2, "shard_grad_op"}, Layout{4, "full_shard"}, Layout{4, "hybrid_shard"}}) {
    config.fsdp.strategy = strategy;
    config.checkpoint.asynchronous = false;
    config.run.steps = 7;
    const std::string path = fresh_directory();
    ASSERT_EQ(run_and_stop(config, world, path, 2), ExitCode::kStopped);
    config.run.steps = 6;  // the last step, from which the run is then continued
    test::run_job(config, world, 1, path);
    config.run.steps = 7;
    test::run_job(config, 2, 1, path);
    EXPECT_EQ(losses_of(path), expected) << strategy;
    EXPECT_EQ(steps_of(path), steps_of(whole)) << strategy;
  }
}

// The loss of a certificate is what the step itself will see, smoothing and z_loss included.
TEST_F(Resume, ACertificateHoldsTheTrainingsOwnLoss) {
  JobConfig config = with_data(test::model_t(6));
  config.loss.label_smoothing = 0.1;
  config.loss.z_loss = 1e-3;
  const std::string whole = fresh_directory(), path = fresh_directory();
  test::run_job(config, 1, 1, whole);
  ASSERT_EQ(run_and_stop(config, 2, path, 2), ExitCode::kStopped);
  test::run_job(config, 1, 1, path);
  EXPECT_EQ(steps_of(path), steps_of(whole));
}

TEST_F(Resume, AnotherLossThanTheStoppedRunSawIsRefused) {
  const JobConfig config = with_data(test::model_t(6));
  const std::string path = fresh_directory();
  ASSERT_EQ(run_and_stop(config, 2, path, 1), ExitCode::kStopped);
  const auto files = make_posix_file_system();
  const std::string folder = path + "/checkpoints/step-00000002";
  Manifest manifest = read_manifest(*files, folder);
  double& loss = manifest.training.certificate.value().loss;
  const double seen = loss;
  loss = std::nextafter(loss, 0.0);
  std::ofstream(folder + "/manifest.json", std::ios::trunc) << encode_manifest(manifest);
  EXPECT_TRUE(
      refusal(config, 4, path)
          .starts_with(fmt::format("5 {}: resume certificate: the loss of step 3's micro-batch 0 is {}, saved was {}",
                                   folder, seen, loss)))
      << refusal(config, 4, path);
}

// All parameters of a checkpoint, by name.
std::map<std::string, std::vector<float>> parameters_of(const std::string& folder) {
  const auto files = make_posix_file_system();
  CheckpointReader reader = CheckpointReader::open(*files, folder);
  std::map<std::string, std::vector<float>> parameters;
  std::vector<TargetSlice> targets;
  for (const TensorRecord& tensor : reader.manifest().tensors) {
    if (tensor.name.ends_with(".m") || tensor.name.ends_with(".v")) continue;
    std::vector<float>& values = parameters[tensor.name];
    values.resize(static_cast<std::size_t>(tensor.num_elements()));
    targets.push_back({.name = tensor.name, .offset = 0, .count = tensor.num_elements(), .data = values.data()});
  }
  reader.read(targets);
  return parameters;
}

// Adam's first update of a weight is rate · g / (|g| + eps): the rate, where the gradient is not tiny. With a counter that begins at 2 the
// corrections would make 0.744 of it; after a resume at 3 that begins again, the fourth would be 1.72 of what it is.
TEST_F(Resume, TheLargestWeightChangeOfTheFirstStepIsTheLearningRateAndTheFourthIsThatOfTheWholeRun) {  // C8
  JobConfig config = with_data(test::model_t(4));
  config.optimizer.weight_decay = 0;
  config.optimizer.clip_norm = 0;
  config.checkpoint.every = 1;
  config.checkpoint.keep_latest = 4;
  const std::string whole = fresh_directory(), path = fresh_directory();
  test::run_job(config, 2, 1, whole);
  std::map<std::string, std::vector<float>> before;
  test::run_ranks(config, 1, [&](test::RankParts& parts) {
    for (const ParameterSpec& parameter : parts.plan.model.parameters)
      before[parameter.name] = parts.gather(parameter.name);
  });
  const auto largest_change = [](const auto& from, const auto& to) {
    double largest = 0;
    for (const auto& [name, values] : to) {
      const std::vector<float>& old = from.at(name);
      for (std::size_t i = 0; i < values.size(); ++i)
        largest = std::max(largest, std::abs(double{values[i]} - double{old[i]}));
    }
    return largest;
  };
  const auto step = [](const std::string& run, int number) {
    return parameters_of(fmt::format("{}/checkpoints/step-{:08}", run, number));
  };
  ASSERT_EQ(before.size(), step(whole, 1).size());
  EXPECT_NEAR(largest_change(before, step(whole, 1)) / config.optimizer.learning_rate, 1.000, 0.0005);

  ASSERT_EQ(run_and_stop(config, 2, path, 2), ExitCode::kStopped);
  test::run_job(config, 4, 1, path);
  EXPECT_EQ(step(path, 4), step(whole, 4));
  EXPECT_EQ(largest_change(step(path, 3), step(path, 4)), largest_change(step(whole, 3), step(whole, 4)));
}

TEST_F(Resume, AnotherMachineMayBringAFirstLossThatIsNearAndNotANumberIsNot) {
  const JobConfig config = with_data(test::model_t(4));
  const ResolvedBatch batch = resolve(config, 1);
  const BatchLoader loader(
      {make_data_part(TokenDataset(config.data.train, config.model.seq_len, config.model.vocab_size), config, 0, 0)},
      config.batch, batch, config.model.seq_len, 0);
  const MeshShape mesh;
  const NumericsRecord numerics;
  const ScheduleConfig schedule;
  const RunFacts facts{.config = config, .mesh = mesh, .loader = loader, .numerics = numerics, .schedule = schedule};
  ResumedRun run;
  run.manifest.training.certificate = ResumeCertificate{.loss = 4.0};
  run.manifest.training.numerics = {{"instruction_set", "another"}};
  EXPECT_NE(check_first_loss(run, facts, 4.003), "");
  EXPECT_THROW(check_first_loss(run, facts, 4.005), CheckpointError);
  EXPECT_THROW(check_first_loss(run, facts, std::nan("")), CheckpointError);
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
