#include "launcher/log_follower.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

class Tee : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory / "logs"); }
  void append(int rank, const std::string& text) const { std::ofstream(path(rank), std::ios::app) << text; }
  std::string path(int rank) const { return directory / ("logs/rank-0000" + std::to_string(rank) + ".log"); }
  std::string take() { return std::exchange(shown, ""); }

  test::TemporaryDirectory directory;
  std::string shown;
  std::function<void(const std::string&)> show = [this](const std::string& lines) { shown += lines; };
};

TEST_F(Tee, ShowsWholeLinesAsTheyCome) {
  LogFollower follower(directory.path().string(), {1}, show);
  follower.poll();
  EXPECT_EQ(take(), "") << "no file yet";
  append(1, "one\ntw");
  append(0, "of another rank\n");
  follower.poll();
  EXPECT_EQ(take(), "[rank 1] one\n");
  append(1, "o\n");
  follower.poll();
  EXPECT_EQ(take(), "[rank 1] two\n");
}

TEST_F(Tee, PutsTheRankInFrontInsteadOfWithin) {
  EXPECT_EQ(teed_line(3, "12:00 info [rank 3/4 hosta] saved [rank 3/4 twice]"),
            "[rank 3] 12:00 info saved [rank 3/4 twice]\n");
  EXPECT_EQ(teed_line(3, "12:00 info [rank 2/4 hosta] text"), "[rank 3] 12:00 info [rank 2/4 hosta] text\n");
  EXPECT_EQ(teed_line(3, ""), "[rank 3] \n");
}

TEST_F(Tee, LeavesOutWhatWasThereBefore) {
  append(1, "of an earlier start\n");
  LogFollower follower(directory.path().string(), {1}, show);
  follower.poll();
  follower.finish();
  EXPECT_EQ(take(), "");
}

// As every start does: the earlier one's files move away, and new ones begin.
TEST_F(Tee, GoesOnWithTheFileOfTheNextStart) {
  LogFollower follower(directory.path().string(), {0, 1}, show);
  append(1, "first\n");
  follower.poll();
  append(1, "last words\nhalf");
  std::filesystem::rename(directory / "logs", directory / "earlier");
  std::filesystem::create_directories(directory / "logs");
  append(1, "second start\n");
  append(0, "zero\n");
  follower.poll();
  EXPECT_EQ(take(), "[rank 1] first\n[rank 0] zero\n[rank 1] last words\n[rank 1] half\n[rank 1] second start\n");
}

TEST_F(Tee, EndsALineThatItsRankDidNotEnd) {
  LogFollower follower(directory.path().string(), {1}, show);
  append(1, "one\ncut of");
  follower.finish();
  EXPECT_EQ(take(), "[rank 1] one\n[rank 1] cut of\n");
}

}  // namespace
}  // namespace tessera
