#include "checkpoint/diff.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr std::int64_t kSize = (3 << 18) + 10;  // four logical blocks

class Diff : public testing::Test {
 protected:
  std::string save(const std::string& name, const std::vector<SourceSlice>& slices) {
    SoloExchange solo;
    return test::save(files_, solo, {.directory = directory_ / name}, 1, slices).folder;
  }
  SourceSlice whole(const std::string& name, const std::vector<float>& values) const {
    const auto count = static_cast<std::int64_t>(values.size());
    return {.name = name, .shape = {count}, .count = count, .data = values.data()};
  }
  CheckpointDiff diff(const std::string& first, const std::string& second) {
    CheckpointReader a = CheckpointReader::open(files_, first), b = CheckpointReader::open(files_, second);
    const std::uint64_t before = files_.bytes_read();
    CheckpointDiff result = diff_checkpoints(a, b);
    bytes_read_ = files_.bytes_read() - before;
    return result;
  }

  test::TemporaryDirectory directory_;
  test::FaultyFileSystem files_;
  std::vector<float> values_ = std::vector<float>(kSize, 1.0F);
  std::uint64_t bytes_read_ = 0;
};

TEST_F(Diff, EqualRootsNeedNoReading) {
  const std::string a = save("a", {whole("w", values_)});
  SourceSlice first = whole("w", values_), second = first;
  first.count = second.offset = 1000;
  second.count = kSize - 1000;
  second.data += 1000;
  const std::string b = save("b", {second, first});  // cut in another way
  const CheckpointDiff result = diff(a, b);
  EXPECT_TRUE(result.same_root);
  EXPECT_TRUE(result.differences.empty());
  EXPECT_EQ(bytes_read_, 0U);
}

TEST_F(Diff, SaysHowMuchAndWhereAndReadsOnlyBlocksThatDiffer) {
  const std::vector<float> same(100, 2.0F);
  const std::string a = save("a", {whole("w", values_), whole("same", same)});
  values_[(1 << 18) + 7] = 1.5F;
  values_[(1 << 18) + 9] = -1.0F;
  const std::string b = save("b", {whole("w", values_), whole("same", same)});
  const CheckpointDiff result = diff(a, b);
  ASSERT_EQ(result.differences.size(), 1U);
  const TensorDifference& difference = result.differences[0];
  EXPECT_EQ(difference.name, "w");
  EXPECT_EQ(difference.num_different, 2);
  EXPECT_EQ(difference.first_index, (1 << 18) + 7);
  EXPECT_EQ(difference.max_difference, 2.0);
  EXPECT_LE(bytes_read_, 4U << 20) << "one logical block of each side lies in two blocks of the file";
}

TEST_F(Diff, ComparesBitsAndKeepsWhatIsNoNumber) {
  const std::string a = save("a", {whole("w", values_)});
  values_[3] = std::nanf("");
  values_[5] = 2.0F;
  const std::string b = save("b", {whole("w", values_)});
  EXPECT_TRUE(std::isnan(diff(a, b).differences.at(0).max_difference));
  EXPECT_TRUE(diff(b, b).same_root);
}

TEST_F(Diff, NamesTensorsThatOneSideLacks) {
  const std::vector<float> small(6, 0.0F);
  SourceSlice shaped = whole("s", small);
  shaped.shape = {2, 3};
  const std::string a = save("a", {whole("only_a", small), whole("s", small)});
  const std::string b = save("b", {whole("only_b", small), shaped});
  const CheckpointDiff result = diff(a, b);
  using Kind = TensorDifference::Kind;
  ASSERT_EQ(result.differences.size(), 3U);
  EXPECT_EQ(result.differences[0].kind, Kind::kOnlyInFirst);
  EXPECT_EQ(result.differences[1].kind, Kind::kOnlyInSecond);
  EXPECT_EQ(result.differences[2].kind, Kind::kShape);
  EXPECT_EQ(result.differences[2].second_shape, (Extents{2, 3}));
}

}  // namespace
}  // namespace tessera
