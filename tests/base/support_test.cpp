// What the tests themselves stand on.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/run_command.h"
#include "tests/support/temporary_directory.h"

namespace tessera::test {
namespace {

TEST(RunCommand, ReturnsBothOutputsAndTheExitCode) {
  const CommandResult result = run_command("echo out; echo err >&2; exit 7");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_FALSE(result.timed_out);
}

TEST(RunCommand, ReportsASignalAsTheShellDoes) {
  EXPECT_EQ(run_command("kill -9 $$").exit_code, 137);
  EXPECT_EQ(run_command("no-such-command-anywhere").exit_code, 127);
}

TEST(RunCommand, TakesMuchOutputOnBothPipes) {
  const CommandResult result = run_command("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2");
  EXPECT_EQ(result.out.size(), 1000000U);
  EXPECT_EQ(result.err.size(), 1000000U);
}

TEST(RunCommand, EndsACommandAndItsChildrenWhenTimeIsUp) {
  const TemporaryDirectory directory;
  CommandOptions options;
  options.timeout_seconds = 0.3;
  options.working_directory = directory.path().string();
  const CommandResult result = run_command("echo started; (sleep 30; touch late) & sleep 30", options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, -1);
  EXPECT_EQ(result.out, "started\n");
}

TEST(RunCommand, PassesDirectoryEnvironmentAndAnEmptyInput) {
  const TemporaryDirectory directory;
  CommandOptions options;
  options.working_directory = directory.path().string();
  options.environment["TESSERA_TEST_VALUE"] = "a b";
  const CommandResult result = run_command("pwd; echo \"$TESSERA_TEST_VALUE\"; wc -c", options);
  EXPECT_EQ(result.out, std::filesystem::canonical(directory.path()).string() + "\na b\n0\n");
}

TEST(TemporaryDirectory, IsGoneAfterItsTest) {
  std::filesystem::path path;
  {
    const TemporaryDirectory directory;
    path = directory.path();
    std::filesystem::create_directories(directory / "deep/er");
    std::ofstream(directory / "deep/er/file") << "x";
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tessera::test
