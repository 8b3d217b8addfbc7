#include "fsdp/traffic.h"

#include <gtest/gtest.h>

#include "fsdp/units.h"
#include "tests/support/tiny_model.h"

namespace tessera {
namespace {

// Units of the tiny model over four shards: the root's 53 elements are 4 × 16, a block's 37 are 4 × 16.
TEST(Traffic, CountsTheCallsAndBytesOfAStep) {
  const ModelSpec model = test::tiny_model(2);
  const std::vector<UnitSpec> units = make_units(model, "block");
  const StepProgram program = build_training_program(model, units, {});
  const std::vector<Traffic> rows =
      traffic_of(program, CallSizes(model, units, {.num_shards = 4, .shard_group = "dp:0"}));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].collective, "all_reduce");
  EXPECT_EQ(rows[0].calls, 2);
  EXPECT_EQ(rows[0].bytes, CallBytes{});
  EXPECT_EQ(rows[1].collective, "all_gather");
  EXPECT_EQ(rows[1].calls, 3 + 2);
  EXPECT_EQ(rows[1].bytes, (CallBytes{5 * 3 * 16 * 4, 5 * 3 * 16 * 4}));
  EXPECT_EQ(rows[2].collective, "reduce_scatter");
  EXPECT_EQ(rows[2].calls, 3);
  // The lookup segment's 35 elements lie in the shards as 16, 16, 3, 0: this rank sends 19, and receives its 16 from three.
  EXPECT_EQ(rows[2].bytes, (CallBytes{(3 * 3 * 16 + 19) * 4, (3 * 3 * 16 + 3 * 16) * 4}));
}

TEST(Traffic, AnAllReduceMovesTwiceAllButItsOwnPart) {
  const ModelSpec model = test::tiny_model(1);
  const std::vector<UnitSpec> units = make_units(model, "block");
  const CallSizes sizes(model, units, {.num_replicas = 4, .replica_group = "dp:0"});
  // A block in one shard: 37 elements are 48.
  EXPECT_EQ(sizes.of({.op = OpCode::kReduceReplicas, .unit = 1}), (CallBytes{2 * 3 * 48, 2 * 3 * 48}));
}

TEST(Traffic, OneRankMovesNothing) {
  const ModelSpec model = test::tiny_model(1);
  const std::vector<UnitSpec> units = make_units(model, "block");
  const StepProgram program = build_training_program(model, units, {});
  for (const Traffic& row : traffic_of(program, CallSizes(model, units, {.shard_group = "dp:0"}))) {
    EXPECT_EQ(row.bytes, CallBytes{}) << row.collective;
  }
}

}  // namespace
}  // namespace tessera
