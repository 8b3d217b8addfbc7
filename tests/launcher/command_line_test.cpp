#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "launcher/launch_line.h"
#include "tests/launcher/programs.h"
#include "tests/support/run_command.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::CommandResult;

CommandResult tessera(const std::string& arguments) {
  return test::run_command(test::kTessera + arguments);
}

std::int64_t num_lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

// Every command and subcommand, as the completion script lists them; "" is the program itself.
std::vector<std::string> all_commands() {
  const std::string script = tessera("completion bash").out;
  const std::regex entry("    '([a-z ]*)'\\) words=");
  std::vector<std::string> commands;
  for (std::sregex_iterator match(script.begin(), script.end(), entry), end; match != end; ++match)
    commands.push_back((*match)[1]);
  return commands;
}

TEST(CommandLine, ShowsExamplesFirstInAHelpOfOneScreen) {
  const std::vector<std::string> commands = all_commands();
  for (const char* known :
       {"", "train", "launch", "plan", "env", "config check", "data prepare", "generate", "completion bash"}) {
    EXPECT_NE(std::find(commands.begin(), commands.end(), known), commands.end()) << known;
  }
  for (const std::string& command : commands) {
    const CommandResult result = tessera(command + " --help");
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_TRUE(result.out.starts_with("Examples:\n")) << command;
    EXPECT_LE(num_lines(result.out), 24) << command;
    EXPECT_NE(result.out.find("\nUsage: tessera"), std::string::npos) << command;
  }
}

TEST(CommandLine, SaysItsVersion) {
  const CommandResult result = tessera("--version");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(std::regex_match(result.out, std::regex("tessera [0-9]+\\.[0-9]+\\.[0-9]+\n"))) << result.out;
}

TEST(CommandLine, EndsAWrongUseWithTwoAndOneLine) {
  for (const char* arguments :
       {"", "bogus", "config bogus", "train", "train a.yaml --no-such-option", "train a.yaml --progress loud",
        "launch -n 0 a.yaml", "launch -n x a.yaml", "env more", "plan"}) {
    const CommandResult result = tessera(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_EQ(num_lines(result.err), 1) << arguments << ": " << result.err;
    EXPECT_TRUE(result.err.starts_with("tessera")) << result.err;
    EXPECT_NE(result.err.find("; hint: "), std::string::npos) << result.err;
  }
  EXPECT_EQ(tessera("bogus").err.substr(0, 34), "tessera: unknown command 'bogus'; ");
}

TEST(CommandLine, SaysInPlainWordsWhatAnOptionTakes) {
  const auto message = [](const std::string& arguments) {
    const std::string text = tessera(arguments).err;
    return text.substr(0, text.find("; hint: "));
  };
  EXPECT_EQ(message("plan a.yaml --ranks 0"),
            "tessera plan: --ranks: found '0', expected a whole number of at least 1");
  EXPECT_EQ(message("plan a.yaml --rank -1"),
            "tessera plan: --rank: found '-1', expected a whole number of at least 0");
  EXPECT_EQ(message("plan a.yaml --ranks 1.5"),
            "tessera plan: --ranks: found '1.5', expected a whole number of at least 1");
  EXPECT_EQ(message("plan a.yaml --ranks"), "tessera plan: --ranks: expected a whole number of at least 1");
  EXPECT_EQ(message("launch -n x a.yaml"), "tessera launch: -n: found 'x', expected a whole number of at least 1");
  EXPECT_EQ(message("launch -n 99999999999 a.yaml"), "tessera launch: -n: 99999999999 is too large");
  EXPECT_EQ(message("config check a.yaml --ranks 0"),
            "tessera config check: --ranks: found '0', expected a whole number from 1 to 1000000");
  EXPECT_EQ(message("train a.yaml --progress loud"),
            "tessera train: --progress: found 'loud', expected one of auto, bar, plain");
}

TEST(CommandLine, OfSeveralRanksTheFirstAloneShowsHelpAndUsageErrors) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    for (const char* arguments : {"--help", "train --help", "--version", "train", "bogus", "train a.yaml --none"}) {
      const auto run = [&](const std::string& rank) {
        return test::run_command(fmt::format("{}/tessera {}", TESSERA_BINARY_DIR, arguments),
                                 {.environment = {{name, rank}}});
      };
      const CommandResult first = run("0"), second = run("1");
      EXPECT_NE(first.out + first.err, "") << arguments;
      EXPECT_EQ(second.out + second.err, "") << arguments;
      EXPECT_EQ(second.exit_code, first.exit_code) << arguments;
    }
  }
}

TEST(CommandLine, DoesNotReportSuccessWhereItsOutputIsLost) {
  const test::TemporaryDirectory directory;
  const std::string plan = std::string("plan ") + TESSERA_SOURCE_DIR + "/configs/gpt2-124m.yaml";
  for (const std::string& arguments :
       {std::string("--help"), std::string("--version"), plan, plan + " --json", std::string("env")}) {
    for (const char* sink : {">/dev/full", ">&-"}) {
      const CommandResult result = tessera(arguments + " " + sink);
      EXPECT_EQ(result.exit_code, 6) << arguments << sink;
      EXPECT_TRUE(result.err.starts_with("stdout: not all of the output could be written")) << result.err;
      EXPECT_EQ(num_lines(result.err), 1) << result.err;
    }
  }
}

TEST(CommandLine, DescribesTheMachine) {
  const CommandResult result = tessera("env --json");
  ASSERT_EQ(result.exit_code, 0);
  const nlohmann::json env = nlohmann::json::parse(result.out);
  for (const char* key : {"tessera", "compiler", "mpi", "mpirun", "pmix", "hwloc", "matmul", "host", "isa", "cores",
                          "cpuset", "dev_shm", "gpu"}) {
    EXPECT_TRUE(env.contains(key)) << key;
  }
  EXPECT_GE(env.at("cores").get<int>(), 1);
  EXPECT_GE(env.at("cpuset").size(), 1U);
  EXPECT_TRUE(env.at("mpi").get<std::string>().starts_with("Open MPI ")) << env.at("mpi");
  EXPECT_EQ(num_lines(tessera("env").out), static_cast<std::int64_t>(env.size())) << "one line a fact";
}

TEST(CommandLine, CompletesCommandsAndOptions) {
  const auto complete = [](const std::string& words) {
    const test::TemporaryDirectory empty;
    return test::run_command(
               fmt::format("bash -c 'source <({0}/tessera completion bash); COMP_WORDS=(tessera {1}); "
                           "COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tessera; echo \"${{COMPREPLY[@]}}\"'",
                           TESSERA_BINARY_DIR, words),
               {.working_directory = empty.path().string()})
        .out;
  };
  EXPECT_EQ(complete("la"), "launch\n");
  EXPECT_EQ(complete("config ch"), "check\n");
  EXPECT_EQ(complete("launch --dry"), "--dry-run\n");
  EXPECT_EQ(complete("config check --ran"), "--ranks\n");
}

TEST(CommandLine, IsInstalledWithWhatItNeeds) {
  const test::TemporaryDirectory prefix;
  const CommandResult installed =
      test::run_command(fmt::format("cmake --install {} --prefix {}", TESSERA_BINARY_DIR, prefix.path().string()));
  ASSERT_EQ(installed.exit_code, 0) << installed.err;
  const std::string program = prefix / "bin/tessera";
  EXPECT_EQ(test::run_command(program + " --version").out, tessera("--version").out);
  EXPECT_EQ(test::run_command(prefix / "libexec/tessera/tessera_empty_mpi").exit_code, 0);
}

TEST(Launch, PrintsTheLineItWouldRun) {
  if (find_mpirun().major == 0) GTEST_SKIP() << "no Open MPI";
  const CommandResult result =
      tessera("launch -n 1 --dry-run job.yaml --set run.steps=5 --run-dir 'a b' --progress plain");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("mpirun --quiet -n 1 --bind-to none "), std::string::npos) << result.out;
  EXPECT_TRUE(result.out.ends_with("/tessera train job.yaml --set run.steps=5 --run-dir 'a b' --progress plain\n"))
      << result.out;
}

TEST(Launch, TakesItsOptionsBeforeAndAfterTheConfig) {
  EXPECT_EQ(tessera("launch --dry-run job.yaml -n 1").out, tessera("launch -n 1 job.yaml --dry-run").out);
}

TEST(Launch, KeepsWhatIsItsOwnOutOfTheLineOfMpirun) {
  const std::string line = "launch -n 1 --dry-run job.yaml --run-dir r --progress plain";
  EXPECT_EQ(tessera(line + " --max-restarts 3 --tee 0").out, tessera(line).out);
}

TEST(Launch, RefusesRanksToTeeThatThereAreNone) {
  for (const auto& [ranks, why] :
       {std::pair("2", "rank 2 is not one of the 2 ranks"), std::pair("0-5", "rank 5 is not one of the 2 ranks"),
        std::pair("1-0", "found '1-0', expected ranks as 0,3 or 0-3, or all"),
        std::pair("0,,1", "found '', expected ranks as 0,3 or 0-3, or all"),
        std::pair("one", "found 'one', expected ranks as 0,3 or 0-3, or all")}) {
    const CommandResult result = tessera(fmt::format("launch -n 2 --dry-run --tee {} job.yaml", ranks));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err, fmt::format("launch: --tee {}: {}\n", ranks, why));
  }
  EXPECT_EQ(tessera("launch -n 2 --max-restarts -1 job.yaml").exit_code, 2);
}

TEST(Launch, CompletesTheOptionsThatItsHelpHasNoLineFor) {
  EXPECT_NE(tessera("completion bash").out.find("--bind-to"), std::string::npos);
  EXPECT_EQ(tessera("launch --dry-run --bind-to bogus job.yaml").exit_code, 2);
}

TEST(Launch, RefusesHostsThatAreNoNumberOrRange) {
  for (const char* nodes : {"0", "x", "2:1", "1:", ":2", "1:2:3", "-1"}) {
    const CommandResult result =
        tessera(fmt::format("launch --nproc-per-node 2 --nnodes {} --dry-run job.yaml", nodes));
    EXPECT_EQ(result.exit_code, 2) << nodes;
    EXPECT_EQ(result.err,
              fmt::format("launch: --nnodes '{}' is neither a number of hosts, at least 1, nor MIN:MAX\n", nodes));
  }
}

TEST(Launch, RefusesACountThatIsNone) {
  const CommandResult result = tessera("launch --nproc-per-node some job.yaml");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--nproc-per-node 'some'"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tessera
