#include "fsdp/shard_layout.h"

#include <gtest/gtest.h>

#include "fsdp/units.h"
#include "tests/support/tiny_model.h"

namespace tessera {
namespace {

// Root unit of the tiny model: a 7×5 table (35 elements, a slot of 48) and a gain of 5 (a slot of 16).
TEST(ShardLayout, ParametersStartAt64ByteBoundariesOnEveryNumberOfShards) {
  const ModelSpec model = test::tiny_model(1);
  const UnitSpec root = make_units(model, "block")[0];
  for (const int shards : {1, 2, 3, 4, 7}) {
    const ShardLayout layout = make_shard_layout(model, root, shards);
    ASSERT_EQ(layout.slots.size(), 2U);
    EXPECT_EQ(layout.slots[0].offset, 0);
    EXPECT_EQ(layout.slots[1].offset, 48);
    EXPECT_EQ(layout.shard_size % kAlignElements, 0);
    EXPECT_GE(layout.flat_size(), 48 + 5);
  }
}

TEST(ShardLayout, TwoShardsCutTheTable) {
  const ModelSpec model = test::tiny_model(1);
  const ShardLayout layout = make_shard_layout(model, make_units(model, "block")[0], 2);
  EXPECT_EQ(layout.shard_size, 32);  // half of 48 + 16
  EXPECT_EQ(layout.slices(0), (std::vector<ShardSlice>{{0, 0, 0, 32}}));
  EXPECT_EQ(layout.slices(1), (std::vector<ShardSlice>{{0, 32, 0, 3}, {3, 0, 16, 5}}));
}

TEST(ShardLayout, ShardsBeyondTheLastParameterHoldPaddingOnly) {
  const ModelSpec model = test::tiny_model(1);
  const ShardLayout layout = make_shard_layout(model, make_units(model, "block")[0], 7);
  EXPECT_EQ(layout.shard_size, 16);
  EXPECT_TRUE(layout.slices(4).empty());
  EXPECT_TRUE(layout.slices(6).empty());
}

TEST(ShardLayout, SlicesOfAllShardsAreEveryElementOnce) {
  const ModelSpec model = test::tiny_model(3, 67, 12);
  for (const std::string wrap : {"block", "root", "2"}) {
    for (const UnitSpec& unit : make_units(model, wrap)) {
      for (const int shards : {1, 2, 3, 4, 5, 8, 16}) {
        const ShardLayout layout = make_shard_layout(model, unit, shards);
        std::vector<std::vector<int>> seen;
        for (const ParameterSpec& p : model.parameters)
          seen.emplace_back(static_cast<std::size_t>(p.shape.num_elements()), 0);
        for (int shard = 0; shard < shards; ++shard) {
          for (const ShardSlice& slice : layout.slices(shard)) {
            EXPECT_LE(slice.shard_offset + slice.size, layout.shard_size);
            for (std::int64_t i = 0; i < slice.size; ++i) {
              ++seen[static_cast<std::size_t>(slice.parameter)][static_cast<std::size_t>(slice.parameter_offset + i)];
            }
          }
        }
        for (std::size_t p = 0; p < seen.size(); ++p) {
          const int expected = layout.find(static_cast<int>(p)) != nullptr ? 1 : 0;
          for (const int count : seen[p]) ASSERT_EQ(count, expected);
        }
      }
    }
  }
}

TEST(ShardLayout, TheLookupSegmentIsCutAtTheShardsBorders) {
  const ModelSpec model = test::tiny_model(1);
  const ShardLayout layout =
      make_shard_layout(model, make_units(model, "block")[0], 4);  // shards of 16, the table is 35
  EXPECT_EQ(layout.lookup_counts(), (std::vector<std::uint64_t>{16, 16, 3, 0}));
  const UnitSpec block = make_units(model, "block")[1];
  EXPECT_EQ(make_shard_layout(model, block, 2).lookup_counts(), (std::vector<std::uint64_t>{0, 0}));
}

TEST(Units, ATiedTableStandsOnceInTheRootUnit) {
  const ModelSpec model = test::tiny_model(2);
  const std::vector<UnitSpec> units = make_units(model, "block");
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].parameters, (std::vector<int>{0, 5}));
  EXPECT_EQ(units[0].segments, (std::vector<int>{0, 3}));
  EXPECT_EQ(units[2].parameters, (std::vector<int>{3, 4}));
}

}  // namespace
}  // namespace tessera
