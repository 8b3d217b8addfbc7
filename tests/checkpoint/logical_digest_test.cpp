#include "checkpoint/logical_digest.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <random>

#include "checkpoint/manifest.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

std::vector<float> some_values(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.5F);
  return values;
}

TEST(LogicalDigest, FollowsTheFormulaOfTheFormat) {
  // docs/checkpoint-format.md, "Logical blocks", written out for three elements from index 5 on.
  const std::vector<float> values{1.0F, -0.0F, 3.5F};
  const std::uint64_t key = mix64(hash_string("w.m") + 0x9e3779b97f4a7c15ULL);
  std::uint64_t expected = 0;
  for (std::uint64_t i = 5; i < 8; ++i)
    expected += mix64(key + (std::rotl(i, 32) ^ std::bit_cast<std::uint32_t>(values[i - 5])));
  EXPECT_EQ(partial_digests("w.m", 5, 3, values.data()), std::vector<std::uint64_t>{expected});
}

TEST(LogicalDigest, PartsOfAnyCutAddUpToTheWhole) {
  const std::int64_t count = 2 * kLogicalBlockElements + 1000;
  const std::vector<float> values = some_values(count);
  const std::vector<std::uint64_t> whole = partial_digests("w", 0, count, values.data());
  ASSERT_EQ(whole.size(), 3U);
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> sum(3, 0);
    for (std::int64_t begin = 0; begin < count;) {
      const std::int64_t end = std::min<std::int64_t>(count, begin + 1 + random() % kLogicalBlockElements);
      add_digests(sum, begin, partial_digests("w", begin, end - begin, values.data() + begin));
      begin = end;
    }
    EXPECT_EQ(sum, whole);
  }
}

TEST(LogicalDigest, ASlicesBordersAreThoseOfBlocks) {
  const std::vector<float> values = some_values(kLogicalBlockElements + 1);
  EXPECT_EQ(partial_digests("w", 0, kLogicalBlockElements, values.data()).size(), 1U);
  EXPECT_EQ(partial_digests("w", kLogicalBlockElements, 1, values.data()).size(), 1U);
  EXPECT_EQ(partial_digests("w", kLogicalBlockElements - 1, 2, values.data()).size(), 2U);
}

TEST(RootHash, DependsOnNamesShapesAndDigestsAndNothingElse) {
  const std::vector<TensorRecord> tensors{{"a", "F32", {2, 3}, {{0, 64, 0, 6}}, {1}},
                                          {"b", "F32", {1}, {{0, 88, 0, 1}}, {2}}};
  const std::uint64_t root = root_hash(tensors);
  auto other = tensors;
  other[0].slices = {{3, 0, 0, 2}, {1, 640, 2, 4}};
  EXPECT_EQ(root_hash(other), root);
  other = tensors;
  other[0].shape = {3, 2};
  EXPECT_NE(root_hash(other), root);
  other = tensors;
  other[1].name = "c";
  EXPECT_NE(root_hash(other), root);
  other = tensors;
  std::swap(other[0].block_digests, other[1].block_digests);
  EXPECT_NE(root_hash(other), root);
  EXPECT_EQ(state_hash(other), 3U);
}

}  // namespace
}  // namespace tessera
