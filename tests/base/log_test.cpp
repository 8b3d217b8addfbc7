#include "runtime/base/log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_identity(3, 8, "hostA");
    log::set_terminal(true);
  }
  void TearDown() override {
    log::close();
    log::set_terminal(true);
  }

  test::TemporaryDirectory directory;
  const std::filesystem::path path = directory / "logs/rank-00003.log";
};

TEST_F(LogTest, LinesNameTimeLevelAndRank) {
  log::open_file(path);
  log::info("mesh: dp 8");
  log::debug("details");
  log::close();
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(ends_with(lines[0], " info [rank 3/8 hostA] mesh: dp 8")) << lines[0];
  EXPECT_TRUE(ends_with(lines[1], " debug [rank 3/8 hostA] details")) << lines[1];
  EXPECT_EQ(lines[0].substr(0, 2), "20");
}

TEST_F(LogTest, WhatARankSaidBeforeItsFileOpenedIsInTheFileToo) {
  log::info("cpuset 0-1");
  log::open_file(path);
  log::info("step 1");
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(ends_with(lines[0], " info [rank 3/8 hostA] cpuset 0-1")) << lines[0];
}

TEST_F(LogTest, AMessageIsInTheFileAsSoonAsTheCallReturns) {
  log::open_file(path);
  log::info("about to be killed");
  EXPECT_NE(contents(path).find("about to be killed"), std::string::npos);
}

TEST_F(LogTest, OnlyWarningsAndErrorsReachTheTerminalAndOnlyWhereItIsEnabled) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  log::info("quiet");
  log::warn("8 threads on 2 cores");
  log::error("disk full");
  log::set_terminal(false);
  log::warn("not here");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[rank 3/8 hostA] warning: 8 threads on 2 cores\n[rank 3/8 hostA] error: disk full\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST_F(LogTest, BracesAndPercentSignsAreTakenAsTheyAre) {
  log::open_file(path);
  log::info("a {} b {0} %v");
  EXPECT_NE(contents(path).find("a {} b {0} %v"), std::string::npos);
}

TEST_F(LogTest, AnotherOpeningAppends) {
  log::open_file(path);
  log::info("first attempt");
  log::close();
  log::info("nowhere");
  log::open_file(path);
  log::info("second attempt");
  EXPECT_EQ(lines_of(path).size(), 2U);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAConfigErrorThatNamesIt) {
  std::ofstream(directory / "file") << "in the way";
  try {
    log::open_file((directory / "file/rank.log").string());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("file/rank.log"), std::string::npos);
  }
}

TEST_F(LogTest, ThreadsDoNotMixTheirLines) {
  log::open_file(path);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log::info("thread " + std::to_string(t) + std::string(100, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  log::close();
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 400U);
  for (const std::string& line : lines) EXPECT_TRUE(ends_with(line, std::string(100, 'x'))) << line;
}

TEST_F(LogTest, IdentityIsWhatLinesCarry) {
  EXPECT_EQ(log::identity(), "[rank 3/8 hostA]");
}

}  // namespace
}  // namespace tessera
