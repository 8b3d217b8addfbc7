// `tessera train` and `tessera launch` as users start them: real mpirun, real jobs of model T.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "launcher/cpuset.h"
#include "launcher/mpi_session.h"
#include "launcher/topology.h"
#include "parallel/collective_log.h"
#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::count;
using test::kTessera;

class MpiTrain : public ::testing::Test {
 protected:
  // Model T, `steps` steps, and what else the YAML should say.
  void write_job(int steps, const std::string& more = "") {
    test::write_tokens(directory / "train.bin", 2000, 64);
    std::ofstream(directory / "job.yaml") << fmt::format(
        "run: {{name: t, steps: {}}}\n"
        "model: {{num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64}}\n"
        "data: {{train: [train.bin]}}\n"
        "batch: {{global_batch_size: 8, micro_batch_size: 2}}\n"
        "reproducibility: {{lanes: 4}}\n"
        "device: {{threads: 1}}\n{}",
        steps, more);
  }

  CommandResult run(const std::string& command, double timeout_seconds = 120) const {
    return test::run_command(command,
                             {.timeout_seconds = timeout_seconds, .working_directory = directory.path().string()});
  }
  CommandResult train(int num_ranks, const std::string& arguments = "",
                      const std::string& options = "--bind-to none") const {
    return run(test::mpirun(num_ranks, options) + kTessera + "train job.yaml " + arguments);
  }
  std::string contents(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory / name).rdbuf();
    return text.str();
  }

  test::TemporaryDirectory directory;
};

// Without the warning that this machine may have fewer cores than the test has ranks.
std::string without_warnings(const std::string& text) {
  std::istringstream lines(text);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("] warning: device: ") == std::string::npos) rest += line + "\n";
  }
  return rest;
}

TEST_F(MpiTrain, RunsToTheEndAndLeavesItsFiles) {
  write_job(3);
  const CommandResult result = train(4);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(without_warnings(result.err), "");
  EXPECT_NE(result.out.find("step 3/3"), std::string::npos) << result.out;
  EXPECT_EQ(count(result.out, "step 3/3"), 1) << "rank 0 alone writes";
  for (int rank = 0; rank < 4; ++rank) {
    const std::string log = contents(fmt::format("runs/t/logs/rank-{:05}.log", rank));
    EXPECT_NE(log.find(fmt::format("[rank {}/4 {}] device: 1 thread, cpuset ", rank, host_name())), std::string::npos)
        << log;
  }
}

TEST_F(MpiTrain, WritesFilesThatParseCompletelyThroughFiveHundredSteps) {  // F8
  write_job(500, "");
  const CommandResult result = train(4, "--set run.log_every=1 --set run.hash_every=50 --run-dir out");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream metrics(contents("out/metrics.jsonl"));
  std::int64_t steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (object.contains("kind")) continue;
    EXPECT_EQ(object.at("step").get<std::int64_t>(), ++steps);
  }
  EXPECT_EQ(steps, 500);
  EXPECT_TRUE(nlohmann::json::accept(contents("out/plan.json")));
  EXPECT_EQ(run(kTessera + "config check out/config.yaml").exit_code, 0);
  std::istringstream lines(result.out);
  std::int64_t printed = 0;
  for (std::string line; std::getline(lines, line);) printed += line.starts_with("step ") ? 1 : 0;
  EXPECT_EQ(printed, 500) << "one line a step, from one rank";
  for (int rank = 0; rank < 4; ++rank) {
    const RankLog log = read_collective_log(directory / fmt::format("out/collectives/rank-{:05}.log", rank));
    EXPECT_EQ(log.state, LogState::kEndedOk);
    EXPECT_EQ(log.step, 500);
    EXPECT_EQ(log.num_damaged, 0U);
    for (const LoggedCall& call : log.calls) EXPECT_GE(call.finished_ns, call.started_ns);
  }
}

TEST_F(MpiTrain, LeavesATraceOfTheStepsThatWereAskedFor) {
  write_job(4, "trace: {steps: [2, 3]}\n");
  const CommandResult trained = train(2, "--run-dir run");
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("trace: run/trace/all.json.gz | next: tessera trace run"), std::string::npos);
  const CommandResult traced = run(kTessera + "trace run --json");
  EXPECT_EQ(traced.exit_code, 0) << traced.err;
  const auto report = nlohmann::json::parse(traced.out);
  ASSERT_EQ(report["ranks"].size(), 2U);
  for (const auto& rank : report["ranks"]) {
    ASSERT_EQ(rank["steps"].size(), 2U);
    EXPECT_EQ(rank["steps"][0]["step"], 2);
    EXPECT_EQ(rank["clock_uncertainty_seconds"], 0.0);  // one machine
    EXPECT_GT(rank["steps"][0]["compute_seconds"].get<double>(), 0.0);
    EXPECT_LE(rank["steps"][0]["compute_seconds"], rank["steps"][0]["step_seconds"]);
  }
  std::filesystem::remove(directory / "run/trace/rank-00001.json");
  const CommandResult partial = run(kTessera + "trace run");
  EXPECT_EQ(partial.exit_code, 3);
  EXPECT_EQ(partial.err, "trace run: no file of rank 1; hint: what is shown is of the other ranks\n");
  EXPECT_NE(partial.out.find("steps 2–3, 1 of 2 ranks"), std::string::npos) << partial.out;
}

// Rank 1 in a time namespace whose CLOCK_MONOTONIC is 1000 s ahead: as good as another machine, with a truth to compare with.
TEST_F(MpiTrain, PutsTheTimesOfAnotherClockOnThatOfRankZero) {
  const std::string elsewhere = "unshare --time --monotonic 1000 --fork ";
  if (run(elsewhere + "true").exit_code != 0) GTEST_SKIP() << "no time namespaces here";
  write_job(3, "trace: {steps: [2, 2]}\n");
  const std::string program = kTessera + "train job.yaml --run-dir run ";
  const CommandResult trained = run(test::mpirun(1, "--bind-to none") + program + ": -n 1 " + elsewhere + program);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const CommandResult traced = run(kTessera + "trace run --json");
  ASSERT_EQ(traced.exit_code, 0) << traced.err;
  const auto ranks = nlohmann::json::parse(traced.out)["ranks"];
  EXPECT_EQ(ranks[0]["clock_offset_seconds"], 0.0);
  const double uncertainty = ranks[1]["clock_uncertainty_seconds"];
  EXPECT_GT(uncertainty, 0.0);
  EXPECT_NEAR(ranks[1]["clock_offset_seconds"].get<double>(), -1000.0, uncertainty);
}

TEST_F(MpiTrain, PrintsEveryProblemOfAConfigOnceAndReturnsTwo) {
  write_job(3, "optimizer: {weigth_decay: 0.1, lr: 1}\n");
  const CommandResult result = train(4);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count(result.err, "optimizer.weigth_decay"), 1) << result.err;
  EXPECT_EQ(count(result.err, "optimizer.lr"), 1) << result.err;
  EXPECT_EQ(count(result.err, fmt::format("[rank 0/4 {}] job.yaml:", host_name())), 2) << result.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "runs"));
}

TEST_F(MpiTrain, PrintsAMeshThatDoesNotFitOnceAndReturnsTwo) {
  write_job(3);
  const CommandResult result = train(3);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count(result.err, "\n"), 1) << result.err;
}

TEST_F(MpiTrain, PrintsBadDataOnceAndReturnsThree) {
  write_job(3);
  test::write_tokens(directory / "train.bin", {1, 2, 3}, 64);
  const CommandResult result = train(4);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count(without_warnings(result.err), "\n"), 1) << result.err;
}

TEST_F(MpiTrain, ADataFileCutShortWhileItTrainsReturnsThreeAndItsName) {
  write_job(1000000);
  const CommandResult result =
      run(test::mpirun(2, "--bind-to none") + kTessera +
          "train job.yaml > out & p=$!; touch out; until grep -q 'step *3/' out; do sleep 0.05; done; "
          "truncate -s 1024 train.bin; wait $p");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count(result.err, "train.bin: has 1024 bytes, and had 5024"), 1) << result.err;
}

TEST_F(MpiTrain, RefusesAFileThatIsNotThere) {
  const CommandResult result = run(test::mpirun(2) + kTessera + "train absent.yaml");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count(result.err, "absent.yaml"), 1) << result.err;
}

TEST_F(MpiTrain, RefusesAJobThatCannotFitInOneLineWithTheCheapestChange) {
  write_job(1);
  const CommandResult result = run(test::mpirun(2) + kTessera + "train job.yaml --set device.memory_limit=600KiB");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(count(result.err, "memory: a rank needs "), 1) << result.err;
  EXPECT_EQ(count(result.err, "and has 600 KiB (device.memory_limit); hint: "), 1) << result.err;
}

TEST_F(MpiTrain, StopsWhenMpirunPassesASignalOn) {
  write_job(1000000);
  const CommandResult result =
      run(test::mpirun(2, "--bind-to none") + kTessera +
          "train job.yaml > out & p=$!; touch out; until grep -q 'step *3/' out; do sleep 0.05; done; "
          "kill -USR1 $p; wait $p; code=$?; tail -n 1 out; exit $code");
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_TRUE(result.out.starts_with("stopping after step ")) << result.out;
  EXPECT_EQ(without_warnings(result.err), "");
}

TEST_F(MpiTrain, StopsUnderLaunchAtAnInterrupt) {
  write_job(1000000);
  const CommandResult result =
      run(kTessera +
          "launch -n 2 job.yaml > out & p=$!; touch out; until grep -q 'step *3/' out; do sleep 0.05; "
          "done; kill -INT $p; wait $p; code=$?; tail -n 1 out; exit $code");
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_TRUE(result.out.starts_with("stopping after step ")) << result.out;
  EXPECT_NE(result.err.find("launch: SIGINT: asking the ranks to stop"), std::string::npos) << result.err;
}

TEST_F(MpiTrain, GoesOnOnOtherRanksAfterAnInterruptAsIfItHadNeverStopped) {
  write_job(200);
  const std::string job = "job.yaml --set run.hash_every=200";
  const CommandResult stopped =
      run(kTessera + "launch -n 2 " + job +
          " --run-dir a > out & p=$!; touch out; until grep -q 'step *3/' out; do sleep 0.05; done; kill -INT $p; "
          "wait $p; code=$?; tail -n 1 out; exit $code");
  ASSERT_EQ(stopped.exit_code, 75) << stopped.out << stopped.err;
  EXPECT_EQ(count(stopped.out, "; resume: same command\n"), 1) << stopped.out;
  const CommandResult resumed = run(kTessera + "launch -n 4 " + job + " --run-dir a");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(count(resumed.out, ", dp 2 → 4, certificate ok\n"), 1) << resumed.out;
  EXPECT_EQ(run(kTessera + "launch -n 1 " + job + " --run-dir b").exit_code, 0);
  const auto last_hash = [&](const std::string& name) {
    const std::string text = contents(name);
    return text.substr(text.rfind("state_hash"));
  };
  EXPECT_EQ(last_hash("a/metrics.jsonl"), last_hash("b/metrics.jsonl"));
  EXPECT_EQ(count(contents("a/metrics.jsonl"), "\"grad_norm\""), 200);
  const CommandResult again = run(kTessera + "launch -n 4 " + job + " --run-dir a");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(again.out.starts_with("finished: ")) << again.out;
}

// Every rank meets the limit in its own time; in a step, with gathers and reduces of others in flight.
TEST_F(MpiTrain, AnErrorWhereverItComesIsPrintedOnceAndEndsEveryRank) {  // D9
  write_job(3);
  int refused = 0;
  for (const char* limit : {"20MiB", "24MiB", "28MiB", "32MiB", "36MiB", "40MiB",
                            "44MiB"}) {  // from building the job to the middle of backward
    const CommandResult result = train(
        4, fmt::format(
               "--run-dir {0} --set model.hidden_size=256 --set model.num_layers=4 --set fsdp.forward_prefetch_depth=3 "
               "--set device.memory_limit={0}",
               limit));
    if (result.exit_code == 0) continue;  // the job fitted
    ++refused;
    EXPECT_EQ(result.exit_code, 6) << limit << result.err;
    EXPECT_EQ(count(without_warnings(result.err), "memory: "), 1) << result.err;
  }
  EXPECT_GE(refused, 2);
}

TEST_F(MpiTrain, WarnsWhereTwoThreadsHaveOneCore) {  // F3: one rank under the binding that mpirun chooses by itself
  if (load_topology("live").num_cores_of(current_cpuset()) < 2) GTEST_SKIP() << "one core: nothing to withhold";
  write_job(1);
  const CommandResult result = train(1, "--set device.threads=2", "");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find(fmt::format("device: 2 threads have 1 core on {}: rank 0 cpuset ", host_name())),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("hint: mpirun --bind-to none, or tessera launch"), std::string::npos) << result.err;
  EXPECT_EQ(train(1, "--set device.threads=2 --run-dir b", "--bind-to none").err, "");
}

TEST_F(MpiTrain, WarnsWhereTwoRanksShareACoreNamingBothCpusets) {  // F3
  write_job(1);
  const std::vector<int> cpuset = current_cpuset();
  const std::string one = fmt::format("{}", cpuset.back());
  const CommandResult result =
      run(fmt::format("taskset -c {} {}{}train job.yaml", one, test::mpirun(2, "--bind-to none"), kTessera));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find(
                fmt::format("device: 2 ranks with 2 threads share 1 core on {}: rank 0 cpuset {}, rank 1 cpuset {}",
                            host_name(), one, one)),
            std::string::npos)
      << result.err;
}

TEST_F(MpiTrain, SharesTheCoresOutUnderLaunch) {
  const std::vector<int> cpuset = current_cpuset();
  if (load_topology("live").num_cores_of(cpuset) != 2 || cpuset.size() != 2) GTEST_SKIP() << "written for two cores";
  write_job(1);
  const CommandResult result = run(kTessera + "launch -n 2 job.yaml");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_NE(result.out.find(fmt::format("1 thread per rank, cpusets: rank 0: {}, rank 1: {}", cpuset[0], cpuset[1])),
            std::string::npos)
      << result.out;
}

TEST_F(MpiTrain, IsRefusedWhereEveryTaskWouldBeRankZero) {
  write_job(1);
  const std::string command = kTessera + "train job.yaml";
  const CommandResult first = run("SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0 " + command);
  EXPECT_EQ(first.exit_code, 2);
  EXPECT_EQ(first.err, "launch: 8 tasks but no PMIx; hint: srun --mpi=pmix, or mpirun\n");
  const CommandResult other = run("SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=5 " + command);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_EQ(other.out + other.err, "");
  EXPECT_FALSE(std::filesystem::exists(directory / "runs"));
}

TEST_F(MpiTrain, EndsFiftyTimesInARow) {  // D9: teardown cannot hang
  write_job(2);
  for (int i = 0; i < 50; ++i) {
    const CommandResult result =
        run(test::mpirun(4, "--bind-to none") + kTessera + "train job.yaml --run-dir again", 60);
    ASSERT_FALSE(result.timed_out) << "run " << i;
    ASSERT_EQ(result.exit_code, 0) << "run " << i << ": " << result.err;
    ASSERT_EQ(without_warnings(result.err), "") << "run " << i;
    std::filesystem::remove_all(directory / "again");
  }
}

// Two groups of two ranks, a host each. Full copies of the parameters stay within a host; what crosses is one all_reduce of a unit's gradient
// shard, and the agreements of a few words.
TEST_F(MpiTrain, HybridOnTwoHostsKeepsTheBitsAndSendsOnlyGradientsAcross) {
  write_job(4, "collectives: {backend: auto}\n");
  const std::string two_hosts = TESSERA_SOURCE_DIR "/tests/support/two_hosts.sh --per-host 2 mpirun --quiet -n 4 ";
  const std::string hash = " --set run.hash_every=1 ";
  const CommandResult result =
      run(two_hosts + kTessera + "train job.yaml --run-dir hybrid --set fsdp.strategy=hybrid_shard" + hash);
  if (result.exit_code == 77) GTEST_SKIP() << result.out;
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("dp 4 (2 × shard 2) × pp 1 × tp 1"), std::string::npos) << result.out;
  ASSERT_EQ(train(2, "--run-dir full" + hash).exit_code, 0);
  const auto numbers = [&](const std::string& run) {
    std::istringstream text(contents(run + "/metrics.jsonl"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return test::promised_numbers(lines);
  };
  EXPECT_EQ(numbers("hybrid"), numbers("full"));

  const std::set<std::string> units = {"root", "block.0", "block.1"};
  std::map<std::string, int> crossing;  // "all_reduce backward of a unit" …, calls of rank 3
  const RankLog log = read_collective_log(directory / "hybrid/collectives/rank-00003.log");
  for (const LoggedCall& call : log.calls) {
    const std::string& group = log.communicators[static_cast<std::size_t>(call.communicator)].group;
    const bool tensor = units.count(std::string(call.identity.what_view())) > 0;
    if (group == "shard:1") continue;  // within the host
    EXPECT_TRUE(group == "world" || group == "replica:1") << group;
    EXPECT_EQ(tensor, group == "replica:1") << describe(call.identity);
    if (tensor) ++crossing[fmt::format("{} {}", name_of(call.identity.op), call.identity.phase)];
    if (!tensor) {
      EXPECT_LT(call.identity.num_elements, 400U) << describe(call.identity);
    }
  }
  EXPECT_EQ(crossing, (std::map<std::string, int>{{"all_reduce backward", 4 * 3}})) << "steps × units";
}

}  // namespace
}  // namespace tessera
