// The small value types: error, dtype, shape, clock, lists of ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_text.h"
#include "runtime/base/shape.h"

namespace tessera {
namespace {

TEST(Error, CarriesItsExitCodeMessageAndHint) {
  const ConfigError error("job.yaml:12: mesh.dp: 3 does not divide 8", "set mesh.dp: auto");
  EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
  EXPECT_STREQ(error.what(), "job.yaml:12: mesh.dp: 3 does not divide 8");
  EXPECT_EQ(error.line(), "job.yaml:12: mesh.dp: 3 does not divide 8; hint: set mesh.dp: auto");
  EXPECT_EQ(DataError("empty file").line(), "empty file");
}

TEST(Error, EveryTypeHasTheCodeThatTheDesignPromises) {
  const auto code = [](const Error& error) { return static_cast<int>(error.exit_code()); };
  EXPECT_EQ(code(ConfigError("")), 2);
  EXPECT_EQ(code(DataError("")), 3);
  EXPECT_EQ(code(CollectiveError("")), 4);
  EXPECT_EQ(code(CheckpointError("")), 5);
  EXPECT_EQ(code(DeviceError("")), 6);
  EXPECT_EQ(code(NonFiniteError("")), 7);
  EXPECT_EQ(code(InternalError("")), 70);
}

TEST(Error, KnowsThePlaceThatThrewIt) {
  const DataError error("x");
  EXPECT_NE(std::string(error.where().file_name()).find("values_test.cpp"), std::string::npos);
}

TEST(Error, RequireNamesItsCallersPlace) {
  EXPECT_NO_THROW(require(true, "the sky is up"));
  try {
    require(false, "a shard has an owner");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("a shard has an owner"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("values_test.cpp"), std::string::npos);
  }
}

TEST(DType, HasSizesAndNames) {
  EXPECT_EQ(size_of(DType::kFloat32), 4U);
  EXPECT_EQ(size_of(DType::kBFloat16), 2U);
  EXPECT_EQ(size_of(DType::kFloat64), 8U);
  EXPECT_EQ(size_of(DType::kUInt8), 1U);
  EXPECT_EQ(size_of(DType::kUInt16), 2U);
  EXPECT_EQ(size_of(DType::kInt64), 8U);
  EXPECT_EQ(name_of(DType::kFloat32), "fp32");
  EXPECT_EQ(name_of(DType::kFloat16), "fp16");
  EXPECT_EQ(name_of(DType::kUInt64), "u64");
  EXPECT_THROW(size_of(static_cast<DType>(99)), InternalError);
}

TEST(Shape, CountsItsElements) {
  const Shape shape = {4, 256, 768};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[2], 768);
  EXPECT_EQ(shape.num_elements(), 786432);
  EXPECT_EQ(shape.str(), "[4, 256, 768]");
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().str(), "[]");
  EXPECT_EQ((Shape{3, 0}).num_elements(), 0);
}

TEST(Shape, EqualMeansSameRankAndSameExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
}

TEST(Shape, RefusesWhatNoTensorHas) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), InternalError);
  EXPECT_THROW((Shape{2, -1}), InternalError);
  EXPECT_THROW((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}).num_elements(), InternalError);
}

TEST(Clock, MonotonicTimeNeverGoesBackAndUnixTimeIsOfThisCentury) {
  const std::int64_t first = monotonic_ns();
  const std::int64_t second = monotonic_ns();
  EXPECT_GE(second, first);
  EXPECT_NEAR(monotonic_seconds(), static_cast<double>(second) * 1e-9, 5.0);
  EXPECT_GT(unix_seconds(), 1.6e9);
  EXPECT_LT(unix_seconds(), 4.2e9);
}

TEST(RankText, RanksAreListedInRanges) {
  EXPECT_EQ(text_of_ranks({3}), "rank 3");
  EXPECT_EQ(text_of_ranks({3, 2, 0}), "ranks 0, 2, 3");
  EXPECT_EQ(text_of_ranks({0, 1, 2, 4}), "ranks 0–2, 4");
  EXPECT_EQ(text_of_ranks({0, 2, 4, 6, 8, 10, 12}), "ranks 0, 2, 4, 6, 8, … (7 ranks)");
}

}  // namespace
}  // namespace tessera
