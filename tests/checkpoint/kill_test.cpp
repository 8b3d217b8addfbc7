// The real thing: a process that saves and saves is killed at a random moment, and what it leaves loads.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>
#include <string>

#include "checkpoint/catalog.h"
#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/checkpoint/thread_ranks.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::SyntheticState;

constexpr int kKilledRanks = 2;

// Saves step after step from `step` on, until it is killed, and says so of each through the pipe.
[[noreturn]] void save_forever(const ModelSpec& model, const std::string& directory, std::int64_t step, int pipe) {
  const auto files = make_posix_file_system();
  test::run_ranks(kKilledRanks, [&](test::ThreadRanks& threads, int rank) {
    test::ThreadExchange ranks(threads, rank);
    for (std::int64_t next = step;; ++next) {
      SyntheticState state(model, "block", kKilledRanks, rank);
      state.fill(next);
      test::save(*files, ranks, {.directory = directory, .retention = {.keep_latest = 2}}, next, state.sources());
      if (rank == 0 && write(pipe, &next, sizeof next) != sizeof next) _exit(1);
    }
  });
  _exit(1);
}

// The last step the pipe tells of, `before` where it tells of none.
std::int64_t last_reported(int pipe, std::int64_t before) {
  std::int64_t step = before;
  while (read(pipe, &step, sizeof step) == sizeof step) {
  }
  return step;
}

TEST(Kill, AtAnyMomentOfASaveLeavesTheLastCompleteStep) {
  const test::TemporaryDirectory directory;
  const std::string checkpoints = directory / "checkpoints";
  const ModelSpec model = test::tiny_model(2, 67, 12);
  const auto files = make_posix_file_system();
  std::mt19937 random(5);
  std::int64_t reached = 0;
  for (int round = 0; round < 25; ++round) {
    remove_leftovers(*files, checkpoints);
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_forever(model, checkpoints, reached + 1, ends[1]);
    close(ends[1]);
    // Once it has saved a step, the moment is random within the time of a few saves.
    pollfd first{ends[0], POLLIN, 0};
    ASSERT_EQ(poll(&first, 1, 60'000), 1);
    usleep(random() % 60'000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::int64_t reported = last_reported(ends[0], reached);
    close(ends[0]);

    const LatestCheckpoint latest = find_latest(*files, checkpoints);
    ASSERT_TRUE(latest.step);
    EXPECT_GE(*latest.step, reported);
    EXPECT_LE(*latest.step, reported + 1);
    SyntheticState loaded(model, "root", 1, 0);
    SoloExchange solo;
    CheckpointReader::open(*files, latest.folder).load(solo, loaded.targets());
    EXPECT_EQ(loaded.num_wrong(*latest.step), 0);
    reached = *latest.step;
  }
}

}  // namespace
}  // namespace tessera
