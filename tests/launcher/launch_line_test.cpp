#include "launcher/launch_line.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace tessera {
namespace {

const MpirunVersion kFour{4, "Open MPI 4.1.4"};
const MpirunVersion kFive{5, "Open MPI 5.0.7"};

LaunchRequest request_of(int num_ranks) {
  LaunchRequest request;
  request.num_ranks = num_ranks;
  request.program = "/bin/tessera";
  request.config = "job.yaml";
  return request;
}

TEST(LaunchLine, StartsTheRanksQuietlyAndLeavesBindingToThem) {
  const LaunchLine line = compose_launch(request_of(2), {.mpirun = kFour, .num_cores = 2});
  EXPECT_EQ(line.str(), "mpirun --quiet -n 2 --bind-to none /bin/tessera train job.yaml");
  EXPECT_TRUE(line.warnings.empty());
}

TEST(LaunchLine, AllowsMoreRanksThanCoresAndWarns) {
  const LaunchLine four = compose_launch(request_of(4), {.mpirun = kFour, .num_cores = 2});
  EXPECT_EQ(four.str(), "mpirun --quiet -n 4 --bind-to none --oversubscribe /bin/tessera train job.yaml");
  ASSERT_EQ(four.warnings.size(), 1U);
  EXPECT_NE(four.warnings[0].find("4 ranks on 2 cores"), std::string::npos);
  const LaunchLine five = compose_launch(request_of(4), {.mpirun = kFive, .num_cores = 2});
  EXPECT_EQ(five.str(), "mpirun --quiet -n 4 --map-by :OVERSUBSCRIBE --bind-to none /bin/tessera train job.yaml");
}

TEST(LaunchLine, LetsRootRun) {
  EXPECT_EQ(
      compose_launch(request_of(1), {.mpirun = kFour, .num_cores = 2, .is_root = true}).str(),
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --quiet -n 1 --bind-to none /bin/tessera "
      "train job.yaml");
}

TEST(LaunchLine, CountsRanksPerNode) {
  LaunchRequest request = request_of(0);
  request.num_ranks.reset();
  request.ranks_per_node = 8;
  request.num_nodes = 2;
  request.hostfile = "hosts";
  EXPECT_EQ(compose_launch(request, {.mpirun = kFour, .num_cores = 2, .hosts = {{"a", 8}, {"b", 8}}}).str(),
            "mpirun --quiet -n 16 --hostfile hosts --map-by ppr:8:node --bind-to none /bin/tessera train job.yaml");
  EXPECT_EQ(compose_launch(request, {.mpirun = kFive, .num_cores = 2, .hosts = {{"a", 4}, {"b", 4}}}).str(),
            "mpirun --quiet -n 16 --hostfile hosts --map-by ppr:8:node:OVERSUBSCRIBE --bind-to none /bin/tessera train "
            "job.yaml");
  request.ranks_per_node.reset();
  request.num_nodes = 1;
  request.hostfile.clear();
  request.rank_per_core = true;
  EXPECT_EQ(compose_launch(request, {.mpirun = kFour, .num_cores = 6}).num_ranks, 6);
}

TEST(LaunchLine, StartsOneRankWhereNoNumberIsGiven) {
  LaunchRequest request = request_of(0);
  request.num_ranks.reset();
  EXPECT_EQ(compose_launch(request, {.mpirun = kFour, .num_cores = 6}).num_ranks, 1);
}

TEST(LaunchLine, RespectsTheUsersMapping) {
  LaunchRequest request = request_of(4);
  request.map_by = "numa";
  EXPECT_EQ(compose_launch(request, {.mpirun = kFour, .num_cores = 8}).str(),
            "mpirun --quiet -n 4 --map-by numa /bin/tessera train job.yaml");
  EXPECT_EQ(compose_launch(request, {.mpirun = kFive, .num_cores = 2}).str(),
            "mpirun --quiet -n 4 --map-by numa:OVERSUBSCRIBE /bin/tessera train job.yaml");
  EXPECT_EQ(compose_launch(request_of(4), {.mpirun = kFour, .num_cores = 8, .mapping_in_environment = true}).str(),
            "mpirun --quiet -n 4 /bin/tessera train job.yaml");
  request = request_of(4);
  request.bind_to = "socket";
  EXPECT_EQ(compose_launch(request, {.mpirun = kFour, .num_cores = 8}).str(),
            "mpirun --quiet -n 4 --bind-to socket /bin/tessera train job.yaml");
}

TEST(LaunchLine, QuotesWhatAShellWouldTakeApart) {
  LaunchRequest request = request_of(1);
  request.config = "my job.yaml";
  request.arguments = {"--set", "mesh.topology=pack:1 core:2", "--set", "run.name=it's"};
  EXPECT_EQ(
      compose_launch(request, {.mpirun = kFour, .num_cores = 2}).str(),
      "mpirun --quiet -n 1 --bind-to none /bin/tessera train 'my job.yaml' --set 'mesh.topology=pack:1 core:2' --set "
      "'run.name=it'\\''s'");
}

TEST(LaunchLine, RefusesTwoCountsThatContradict) {
  LaunchRequest request = request_of(4);
  request.ranks_per_node = 2;
  EXPECT_THROW(compose_launch(request, {.mpirun = kFour}), ConfigError);
  request.ranks_per_node.reset();
  request.num_nodes = 2;
  EXPECT_THROW(compose_launch(request, {.mpirun = kFour}), ConfigError);
}

TEST(LaunchLine, RefusesMoreRanksThanCanBeMeant) {
  EXPECT_EQ(compose_launch(request_of(256), {.mpirun = kFour, .num_cores = 2}).num_ranks, 256);
  try {
    compose_launch(request_of(257), {.mpirun = kFour, .num_cores = 2});
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.line(), "launch: 257 ranks, expected at most 256 on 2 cores");
  }
  LaunchRequest request = request_of(0);
  request.num_ranks.reset();
  request.ranks_per_node = 2000000000;
  request.num_nodes = 2000000000;  // the product is beyond 32 bits
  EXPECT_THROW(compose_launch(request, {.mpirun = kFour, .num_cores = 2}), ConfigError);
}

TEST(LaunchLine, RefusesAPolicyThatMpirunDoesNotKnowByName) {
  const auto refusal = [](std::string LaunchRequest::*option, const std::string& policy) -> std::string {
    LaunchRequest request = request_of(2);
    request.*option = policy;
    try {
      compose_launch(request, {.mpirun = kFour, .num_cores = 2});
    } catch (const ConfigError& error) {
      return error.line();
    }
    return "";
  };
  EXPECT_TRUE(refusal(&LaunchRequest::map_by, "bogus:PE=2").starts_with("launch: --map-by bogus:PE=2: ")) << "map_by";
  EXPECT_TRUE(refusal(&LaunchRequest::bind_to, "ppr:2:node").starts_with("launch: --bind-to ppr:2:node: "));
  EXPECT_TRUE(refusal(&LaunchRequest::rank_by, "none").starts_with("launch: --rank-by none: "));
  for (const char* good : {"ppr:2:node", "socket:PE=2", "NUMA", "hwthread", "seq", ":OVERSUBSCRIBE", "l3cache"})
    EXPECT_EQ(refusal(&LaunchRequest::map_by, good), "");
  for (const char* good : {"none", "core:overload-allowed", "package"})
    EXPECT_EQ(refusal(&LaunchRequest::bind_to, good), "");
  for (const char* good : {"slot", "node", "span"}) EXPECT_EQ(refusal(&LaunchRequest::rank_by, good), "");
}

TEST(LaunchLine, RefusesAnMpirunOfAnotherKindNamingIt) {
  try {
    compose_launch(request_of(2), {.mpirun = {0, "HYDRA build details:"}});
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_NE(error.line().find("HYDRA build details:"), std::string::npos);
  }
}

TEST(VersionOfMpirun, IsReadFromTheFirstLine) {
  EXPECT_EQ(parse_mpirun_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to …\n"),
            (MpirunVersion{4, "Open MPI 4.1.4"}));
  EXPECT_EQ(parse_mpirun_version("mpirun (Open MPI) 5.0.7\n"), (MpirunVersion{5, "Open MPI 5.0.7"}));
  EXPECT_EQ(parse_mpirun_version("").major, 0);
  EXPECT_EQ(parse_mpirun_version("HYDRA build details:\n").major, 0);
}

TEST(LaunchLine, RefusesMoreHostsThanAreNamed) {
  LaunchRequest request = request_of(0);
  request.num_ranks.reset();
  request.ranks_per_node = 2;
  request.num_nodes = 3;
  request.hostfile = "hosts";
  const LaunchFacts facts{.mpirun = kFour, .num_cores = 2, .hosts = {{"a", 2}, {"b", 2}}};
  try {
    compose_launch(request, facts);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.line(), "launch: --nnodes 3, and hosts names 2 hosts");
  }
  request.min_nodes = 3;
  request.num_nodes = 4;
  EXPECT_THROW(compose_launch(request, facts), ConfigError);
  request.min_nodes = 1;  // MIN:MAX takes as many as there are
  EXPECT_EQ(compose_launch(request, facts).num_ranks, 4);
  request.num_nodes = 1;  // more hosts than are needed are no error
  EXPECT_EQ(compose_launch(request, facts).num_ranks, 2);
}

TEST(LaunchLine, KnowsWhetherAllRanksAreOfThisHost) {
  EXPECT_TRUE(compose_launch(request_of(2), {.mpirun = kFour, .num_cores = 2}).one_host);
  LaunchRequest request = request_of(2);
  request.host = "a:1,b:1";
  EXPECT_FALSE(compose_launch(request, {.mpirun = kFour, .num_cores = 2, .hosts = {{"a", 1}, {"b", 1}}}).one_host);
}

}  // namespace
}  // namespace tessera
