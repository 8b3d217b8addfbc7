#include "runtime/train/trace_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

RankTrace sample(int rank) {
  RankTrace trace;
  trace.header = {.run = "00000000000000ab",
                  .rank = rank,
                  .world_size = 2,
                  .at = {.dp = rank},
                  .host = "host \"A\"\n",  // what JSON must escape
                  .steps = {2, 3},
                  .num_dropped_steps = 1,
                  .origin_ns = 25'029'361'104'547,
                  .clock = {.offset_ns = -7'000'000'123, .uncertainty_ns = 45}};
  trace.spans.push_back(
      {.trace_class = TraceClass::kWindow, .name = "step 2", .step = 2, .begin_ns = 0, .end_ns = 999});
  trace.spans.push_back({.trace_class = TraceClass::kCompute,
                         .name = "forward block.1",
                         .what = "block.1",
                         .phase = "forward",
                         .step = 2,
                         .micro_batch = 0,
                         .begin_ns = 1,
                         .end_ns = 123'456'789'012'345});  // 34 hours, to the nanosecond
  trace.spans.push_back({.trace_class = TraceClass::kCommunication,
                         .stream = StreamId::kGather,
                         .name = "all_gather block.2",
                         .what = "block.2",
                         .phase = "forward",
                         .step = 2,
                         .begin_ns = 500,
                         .end_ns = 1501,
                         .call = {.op = CollectiveOp::kAllGather,
                                  .group = "dp:0",
                                  .group_size = 2,
                                  .sequence = 17,
                                  .bytes = 4096,
                                  .queued_ns = 20,
                                  .waited_ns = 333}});
  return trace;
}

class TraceFile : public ::testing::Test {
 protected:
  std::string write(int rank) {
    const std::string path = directory_ / ("rank-" + std::to_string(rank) + ".json");
    write_rank_trace(path, sample(rank));
    return path;
  }
  // The error of reading a file with that text.
  std::string refusal(const std::string& text) {
    const std::string path = directory_ / "damaged.json";
    std::ofstream(path) << text;
    try {
      read_rank_trace(path);
    } catch (const DataError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(path)) << error.what();
      return std::string(error.what()).substr(path.size());
    }
    return "";
  }
  static std::string contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  test::TemporaryDirectory directory_;
};

TEST_F(TraceFile, ReadsBackWhatWasWrittenToTheNanosecond) {
  const RankTrace read = read_rank_trace(write(1));
  EXPECT_EQ(read.header, sample(1).header);
  EXPECT_EQ(read.spans, sample(1).spans);
}

TEST_F(TraceFile, ThatIsDamagedIsNamedWithTheLine) {
  const std::string text = contents(write(0));
  EXPECT_EQ(refusal(text), "");
  EXPECT_EQ(refusal(text.substr(0, text.find("]}\n"))).substr(0, 27), ": damaged: ends after line ");
  EXPECT_EQ(refusal("").substr(0, 18), ": damaged: line 1:");
  EXPECT_EQ(refusal("text\n").substr(0, 18), ": damaged: line 1:");
  std::string cut = text;
  cut.erase(cut.find("\"ts\":0.001"), 5);
  EXPECT_EQ(refusal(cut).substr(0, 16), ": damaged: line ");
  std::string other = text;
  other.replace(other.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_EQ(refusal(other), ": damaged: line 1: version 2, this program reads 1");
}

TEST_F(TraceFile, ThatCannotBeWrittenOrReadIsAnErrorOfItsKind) {
  EXPECT_THROW(write_rank_trace(directory_ / "no folder/rank.json", sample(0)), DeviceError);
  EXPECT_THROW(read_rank_trace(directory_ / "none.json"), DataError);
  EXPECT_THROW(merge_traces({write(0)}, directory_ / "no folder/all.json.gz"), DeviceError);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "no folder"));
}

TEST_F(TraceFile, IsNotMergedWhereARanksFileIsDamaged) {
  const std::string first = write(0), second = write(1);
  std::filesystem::resize_file(second, std::filesystem::file_size(second) - 4);
  EXPECT_THROW(merge_traces({first, second}, directory_ / "all.json.gz"), DataError);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "all.json.gz"));
}

}  // namespace
}  // namespace tessera
