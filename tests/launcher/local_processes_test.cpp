#include "launcher/local_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A program that sleeps, as a child of this process, until the end of a test.
class Sleeper {
 public:
  explicit Sleeper(const std::string& program) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::execl(program.c_str(), program.c_str(), "100", nullptr);
    ::_exit(127);
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(LocalRanks, StayWhoTheyAreWhereTheirProgramIsBuiltOrInstalledAnew) {
  const test::TemporaryDirectory directory;
  const std::string program = directory / "program", other = directory / "other";
  fs::copy_file(fs::canonical("/bin/sleep"), program);
  fs::copy_file(program, other);
  const LocalRanks ranks(::getpid(), {"mpirun", program, "job.yaml"});
  const Sleeper rank(program), no_rank(other);
  const std::vector<pid_t> expected = {rank.pid()};
  for (int i = 0; i < 500 && ranks.pids() != expected; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_EQ(ranks.pids(), expected);
  fs::rename(program, directory / "program.old");
  EXPECT_EQ(ranks.pids(), expected);
  fs::remove(directory / "program.old");
  fs::copy_file(other, program);
  EXPECT_EQ(ranks.pids(), expected);
}

}  // namespace
}  // namespace tessera
