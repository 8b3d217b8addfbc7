#include "tools/inspect_command.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "parallel/collective_log.h"
#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"
#include "tools/help_command.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A log as a rank of one dp group writes it.
class Rank {
 public:
  Rank(const std::string& run, int rank, int world_size, std::uint64_t capacity = 32) {
    static const LogOwner process = LogOwner::this_process();
    LogOwner owner = process;
    owner.run_id = 1;
    owner.world_rank = owner.logical_rank = owner.at.dp = rank;
    owner.world_size = owner.mesh.dp = world_size;
    log_ = CollectiveLog::create(fmt::format("{}/collectives/rank-{:05}.log", run, rank), owner, capacity);
    group_hash_ = collective_group_hash("dp:0", "gather", world_size);
    communicator_ = log_->add_communicator(
        {.group = "dp:0", .channel = "gather", .size = world_size, .position = rank, .group_hash = group_hash_});
    log_->set_step(3);
  }
  CollectiveLog::Handle enqueue(const std::string& what) {
    CollectiveIdentity identity;
    identity.sequence = sequence_++;
    identity.num_elements = 9216;
    identity.step = 3;
    identity.micro_batch = 0;
    identity.op = CollectiveOp::kAllGather;
    identity.dtype = DType::kFloat32;
    set_name(identity.what, sizeof(identity.what), what);
    set_name(identity.phase, sizeof(identity.phase), "forward");
    const std::uint64_t fingerprint = fingerprint_of(group_hash_, identity);
    chain_ = extend_chain(chain_, fingerprint);
    return log_->enqueue(communicator_, identity, fingerprint, chain_);
  }
  void call(const std::string& what) {
    const auto handle = enqueue(what);
    log_->started(handle);
    log_->finished(handle, 1000);
  }
  void begin(const std::string& what) { log_->started(enqueue(what)); }
  void end(int exit_code, const std::string& message = "", int culprit = -1) { log_->end(exit_code, message, culprit); }

 private:
  std::unique_ptr<CollectiveLog> log_;
  int communicator_ = 0;
  std::uint64_t group_hash_ = 0, sequence_ = 0, chain_ = 0;
};

class InspectCommand : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(directory_ / "collectives"); }
  std::string run_directory() const { return directory_.path().string(); }

  struct Result {
    int exit_code = 0;
    std::string out;
  };
  Result inspect(std::vector<std::string> arguments) const {
    CLI::App app;
    Result result;
    add_inspect_command(app, result.exit_code);
    arguments.insert(arguments.begin(), {"inspect", run_directory()});
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the last argument first
    ::testing::internal::CaptureStdout();
    try {
      app.parse(arguments);
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
    result.out = ::testing::internal::GetCapturedStdout();
    return result;
  }
  nlohmann::json verdict(int exit_code) const {
    const Result result = inspect({"--json", "--stall-seconds", "0"});
    EXPECT_EQ(result.exit_code, exit_code);
    return nlohmann::json::parse(result.out);
  }

  test::TemporaryDirectory directory_;
};

TEST_F(InspectCommand, ARunThatEndedWellIsOkAndExitsWith0) {
  for (int r = 0; r < 2; ++r) {
    Rank rank(run_directory(), r, 2);
    rank.call("root");
    rank.end(0);
  }
  const Result result = inspect({});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.substr(0, result.out.find('\n')), "ok: 2 ranks ended, step 3; 2 calls compared");
  const auto json = verdict(0);
  EXPECT_EQ(json["verdict"], "ok");
  EXPECT_EQ(json["ranks"][1]["last_finished"]["what"], "root");
  EXPECT_EQ(json["ranks"][1]["state"], "ended");
}

TEST_F(InspectCommand, AMismatchNamesBothTagsAndExitsWith4) {
  std::vector<Rank> ranks;
  for (int r = 0; r < 3; ++r) ranks.emplace_back(run_directory(), r, 3).call("root");
  ranks[0].begin("block.1");
  ranks[1].begin("block.2");
  ranks[2].begin("block.1");
  const Result result = inspect({});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.out.substr(0, result.out.find('\n')),
            "mismatch: collective mismatch in call 1 of dp:0/gather: ranks 0, 2: tag block.1 forward; rank 1: tag "
            "block.2 forward");
  const auto json = verdict(4);
  EXPECT_EQ(json["verdict"], "mismatch");
  EXPECT_EQ(json["culprits"], nlohmann::json({1}));
  EXPECT_EQ(json["divergences"][0]["sequence"], 1);
  EXPECT_EQ(json["divergences"][0]["sides"][1]["call"]["what"], "block.2");
  EXPECT_EQ(json["divergences"][0]["sides"][1]["differs"], nlohmann::json({"tag block.2 forward"}));
}

TEST_F(InspectCommand, AStallNamesWhoIsWaitedFor) {
  std::vector<Rank> ranks;
  for (int r = 0; r < 3; ++r) ranks.emplace_back(run_directory(), r, 3).call("root");
  ranks[0].begin("block.1");
  ranks[2].begin("block.1");
  EXPECT_EQ(inspect({}).exit_code, 0);  // too early to say
  const auto json = verdict(4);
  EXPECT_EQ(json["verdict"], "stalled");
  EXPECT_EQ(json["culprits"], nlohmann::json({1}));
  EXPECT_EQ(json["waits"][0]["waiting"], nlohmann::json({0, 2}));
  EXPECT_EQ(json["waits"][0]["absent"], nlohmann::json({1}));
  EXPECT_EQ(json["waits"][0]["call"]["what"], "block.1");
  EXPECT_EQ(json["ranks"][2]["pending"][0]["sequence"], 1);
}

TEST_F(InspectCommand, AFailureShowsItsMessage) {
  Rank(run_directory(), 0, 2).end(4, "rank 1 is gone");
  Rank(run_directory(), 1, 2).end(6, "memory: the host has no more");
  const auto json = verdict(4);
  EXPECT_EQ(json["verdict"], "failed");
  EXPECT_EQ(json["culprits"], nlohmann::json({1}));
  EXPECT_EQ(json["ranks"][1]["message"], "memory: the host has no more");
}

TEST_F(InspectCommand, AnErrorThatAllRanksEndedWithIsOfOneRank) {
  for (int r = 0; r < 3; ++r) Rank(run_directory(), r, 3).end(3, "data: id 9", 1);
  const auto json = verdict(4);
  EXPECT_EQ(json["verdict"], "failed");
  EXPECT_EQ(json["culprits"], nlohmann::json({1}));
  EXPECT_EQ(json["ranks"][0]["state"], "ended with it");
  EXPECT_EQ(json["ranks"][0]["ended_with"], 1);
  EXPECT_EQ(json["ranks"][1]["state"], "failed");
  EXPECT_EQ(json["ranks"][1]["ended_with"], -1);
}

TEST_F(InspectCommand, AMissingAndAnUnreadableLogAreNamed) {
  Rank(run_directory(), 0, 3).end(0);
  std::ofstream(run_directory() + "/collectives/rank-00001.log") << "text";
  const auto json = verdict(4);
  EXPECT_EQ(json["verdict"], "missing");
  EXPECT_EQ(json["culprits"], nlohmann::json({1, 2}));
  EXPECT_EQ(json["unreadable"][0]["rank"], 1);
  EXPECT_EQ(json["ranks"][2]["message"], "no collective log");
}

TEST_F(InspectCommand, CallsAreOneLineEach) {
  std::vector<Rank> ranks;
  for (int r = 0; r < 2; ++r) {
    Rank& rank = ranks.emplace_back(run_directory(), r, 2);
    for (const char* what : {"root", "block.0", "block.1"}) rank.call(what);
    rank.begin("block.2");
    rank.enqueue("block.3");
  }
  const auto lines = [&](const std::vector<std::string>& arguments) {
    const Result result = inspect(arguments);
    EXPECT_EQ(result.exit_code, 0);
    std::vector<std::string> all;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  };
  EXPECT_EQ(lines({"--calls"}).size(), 10U);
  const auto last = lines({"--calls", "--rank", "1", "--last", "3"});
  ASSERT_EQ(last.size(), 3U);
  const std::string call =
      " rank 1 call 2 of dp:0/gather: all_gather block.1 forward, step 3, micro 0, 9216 fp32 | queued ";
  EXPECT_EQ(last[0].substr(15, call.size()), call);
  EXPECT_NE(last[0].find(", waited 1.0 us | "), std::string::npos) << last[0];
  EXPECT_NE(last[1].find(", not finished | "), std::string::npos) << last[1];
  EXPECT_NE(last[2].find("| not started | "), std::string::npos) << last[2];
  EXPECT_TRUE(lines({"--calls", "--last", "0"}).empty());
  EXPECT_THROW(inspect({"--calls", "--rank", "7"}), DataError);
}

TEST_F(InspectCommand, MistakesAreErrorsOfTheirKind) {
  EXPECT_THROW(inspect({}), DataError);  // no logs
  EXPECT_THROW(inspect({"--rank", "1"}), CLI::ParseError);
  EXPECT_THROW(inspect({"--calls", "--json"}), CLI::ParseError);
  fs::remove_all(directory_.path());
  EXPECT_THROW(inspect({}), ConfigError);
}

TEST_F(InspectCommand, HelpFitsOnAScreen) {
  CLI::App app;
  int exit_code = 0;
  style_help(app);
  add_inspect_command(app, exit_code);
  const std::string help = app.get_subcommand("inspect")->help();
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 24);
}

TEST_F(InspectCommand, OneOf4096RanksThatDivergesIsFound) {
  constexpr int num_ranks = 4096;
  constexpr int odd = 2741;
  constexpr int num_calls = 16;
  for (int r = 0; r < num_ranks; ++r) {
    Rank rank(run_directory(), r, num_ranks, num_calls);
    for (int call = 0; call < num_calls; ++call)
      rank.call(fmt::format("block.{}", r == odd && call == num_calls / 2 ? 99 : call));
  }
  const auto json = verdict(4);
  EXPECT_EQ(json["verdict"], "mismatch");
  EXPECT_EQ(json["culprits"], nlohmann::json({odd}));
  EXPECT_EQ(json["divergences"].size(), 1U);
  EXPECT_EQ(json["divergences"][0]["sequence"], num_calls / 2);
  EXPECT_EQ(json["summary"],
            fmt::format("collective mismatch in call {} of dp:0/gather: ranks 0–2740, 2742–4095: tag block.{} forward; "
                        "rank 2741: tag block.99 forward",
                        num_calls / 2, num_calls / 2));
}

}  // namespace
}  // namespace tessera
