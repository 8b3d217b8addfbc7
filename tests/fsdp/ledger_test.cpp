// The ledger of a model described by hand, as arithmetic. (tests/train/memory_test.cpp compares it with real runs.)
#include "fsdp/ledger.h"

#include <gtest/gtest.h>

#include "fsdp/ledger_timeline.h"
#include "fsdp/units.h"
#include "tests/support/tiny_model.h"

namespace tessera {
namespace {

// Two blocks. Flat parameters: the root holds a tied [7, 5] table (35 elements, so the next starts at 48) and a gain of 5: 53, or 64 in multiples
// of 16; a block holds 25 (the next starts at 32) and 5: 37, or 48, which two shards make 2 × 32. All of fp32.
constexpr std::int64_t kFull = 64 * 4;    // of any unit over two shards
constexpr std::int64_t kShard = 32 * 4;   // of any unit over two shards
constexpr std::int64_t kLookup = 48 * 4;  // the table's second gradient segment: 35 elements in blocks of 64 bytes

ModelSpec model() {
  ModelSpec spec = test::tiny_model(2);
  spec.constant_bytes = 64;
  spec.segments.front().forward = {.kept = 100, .activations_peak = 100, .activations_at_peak = 100};
  spec.segments.front().backward = {.kept = -100};
  for (const std::size_t block : {1, 2}) {
    spec.segments[block].forward = {.kept = 300,
                                    .activations_peak = 300,
                                    .workspace_peak = 50,
                                    .activations_at_peak = 300,
                                    .workspace_at_peak = 40};
    spec.segments[block].backward = {.kept = -300, .workspace_peak = 70, .workspace_at_peak = 70};
    spec.segments[block].evaluate = {.workspace_peak = 80, .workspace_at_peak = 80};
  }
  spec.segments.back().backward = {
      .activations_peak = 100, .workspace_peak = 60, .activations_at_peak = 100, .workspace_at_peak = 60};
  return spec;
}

struct Case {
  ModelSpec spec = model();
  std::vector<UnitSpec> units = make_units(spec, "block");
  ScheduleOptions options;
  ShardGroups groups = {.num_shards = 2, .shard_group = "dp:0"};

  StepProgram program() const { return build_training_program(spec, units, options); }
  Ledger ledger() const { return make_ledger(program(), spec, units, groups); }
};

std::int64_t bytes(const MemoryBytes& by_category, MemoryCategory category) {
  return by_category[static_cast<std::size_t>(category)];
}

TEST(Ledger, AtRestThereAreShardsMomentsAndTables) {
  const Ledger ledger = Case().ledger();
  EXPECT_EQ(bytes(ledger.at_rest, MemoryCategory::kParameters), 3 * kShard);
  EXPECT_EQ(bytes(ledger.at_rest, MemoryCategory::kOptimizer), 2 * 3 * kShard);
  EXPECT_EQ(bytes(ledger.at_rest, MemoryCategory::kWorkspace), 64);
  EXPECT_EQ(total_of(ledger.at_rest), 9 * kShard + 64);
}

// The program of Schedule.BackwardPreIsThisList, line by line: gathered units + full gradients and gradient shards + activations.
TEST(Ledger, FollowsAStepInstructionByInstruction) {
  const Case c;
  const Ledger ledger = c.ledger();
  const std::int64_t rest = total_of(ledger.at_rest);
  const std::vector<Ledger::Line> expected = {
      {0, 0},                                                                      // agree tokens
      {kFull, kFull},                                                              // unshard root
      {kFull, kFull},                                                              // wait root
      {2 * kFull, 2 * kFull},                                                      // unshard block.0
      {2 * kFull + 100, 2 * kFull + 100},                                          // forward embedding
      {2 * kFull + 100, 2 * kFull + 100},                                          // wait block.0
      {3 * kFull + 100, 3 * kFull + 100},                                          // unshard block.1
      {3 * kFull + 400, 3 * kFull + 100 + 300 + 40},                               // forward block.0
      {2 * kFull + 400, 3 * kFull + 400},                                          // reshard block.0
      {2 * kFull + 400, 2 * kFull + 400},                                          // wait block.1
      {2 * kFull + 700, 2 * kFull + 400 + 300 + 40},                               // forward block.1
      {kFull + 700, 2 * kFull + 700},                                              // reshard block.1
      {2 * kFull + 700, 2 * kFull + 700},                                          // unshard block.1
      {3 * kFull + 700, 3 * kFull + 700},                                          // open gradient root
      {3 * kFull + 700, 3 * kFull + 700 + 100 + 60},                               // forward backward head
      {3 * kFull + 700, 3 * kFull + 700},                                          // wait block.1
      {4 * kFull + 700, 4 * kFull + 700},                                          // unshard block.0
      {5 * kFull + 700, 5 * kFull + 700},                                          // open gradient block.1
      {5 * kFull + 400, 5 * kFull + 700 + 70},                                     // backward block.1
      {4 * kFull + 400, 5 * kFull + 400},                                          // reshard block.1
      {4 * kFull + kShard + 400, 4 * kFull + kShard + 400},                        // reduce block.1
      {4 * kFull + kShard + 400, 4 * kFull + kShard + 400},                        // wait block.0
      {5 * kFull + kShard + 400, 5 * kFull + kShard + 400},                        // open gradient block.0
      {5 * kFull + kShard + 100, 5 * kFull + kShard + 400 + 70},                   // backward block.0
      {4 * kFull + kShard + 100, 5 * kFull + kShard + 100},                        // reshard block.0
      {3 * kFull + kShard + 100, 4 * kFull + kShard + 100},                        // wait reduce block.1
      {3 * kFull + 2 * kShard + 100, 3 * kFull + 2 * kShard + 100},                // reduce block.0
      {3 * kFull + kLookup + 2 * kShard, 3 * kFull + kLookup + 2 * kShard + 100},  // backward embedding
      {2 * kFull + kLookup + 2 * kShard, 3 * kFull + kLookup + 2 * kShard},        // reshard root
      {kFull + kLookup + 2 * kShard, 2 * kFull + kLookup + 2 * kShard},            // wait reduce block.0
      // Of the table's 35 elements the first 32 are this rank's.
      {kFull + kLookup + 3 * kShard + 32 * 4, kFull + kLookup + 3 * kShard + 32 * 4},  // reduce root
      {3 * kShard, kFull + kLookup + 3 * kShard + 32 * 4},                             // wait reduce root
      {3 * kShard, 3 * kShard},                                                        // agree norm, finite, stop
      {3 * kShard, 3 * kShard},                                                        // update
  };
  const StepProgram program = c.program();
  ASSERT_EQ(ledger.timeline.size(), expected.size());
  for (std::size_t n = 0; n < expected.size(); ++n) {
    EXPECT_EQ(ledger.timeline[n].live - rest, expected[n].live) << program.text(program.instructions[n]);
    EXPECT_EQ(ledger.timeline[n].peak - rest, expected[n].peak) << program.text(program.instructions[n]);
  }
  EXPECT_EQ(ledger.peak(), rest + 5 * kFull + 700 + 70);
  EXPECT_EQ(peak_place(program, ledger), "backward block.1");
  EXPECT_EQ(bytes(ledger.at_peak, MemoryCategory::kGathered), 3 * kFull);
  EXPECT_EQ(bytes(ledger.at_peak, MemoryCategory::kGradients), 2 * kFull);
  EXPECT_EQ(bytes(ledger.peaks, MemoryCategory::kGathered), 3 * kFull);
  EXPECT_EQ(bytes(ledger.peaks, MemoryCategory::kActivations), 800);
  EXPECT_EQ(bytes(ledger.peaks, MemoryCategory::kWorkspace), 64 + 70);
}

TEST(Ledger, TheShardOfALookupSegmentIsTheRanksOwn) {
  Case c;
  c.groups.shard = 1;
  const Ledger first = Case().ledger(), second = c.ledger();
  const std::size_t reduce_root = first.timeline.size() - 4;
  // 32 elements against 3, which take a block of 16.
  EXPECT_EQ(first.timeline[reduce_root].live - second.timeline[reduce_root].live, (32 - 16) * 4);
}

TEST(Ledger, WithoutShardsNothingIsGatheredAndFullGradientsStay) {
  Case c;
  c.groups = {.num_replicas = 2, .replica_group = "dp:0"};
  c.options.full_parameters = FullParameters::kAlways;
  c.options.shard_group = "";
  c.options.replica_group = "dp:0";
  const Ledger ledger = c.ledger();
  const std::int64_t all = (64 + 48 + 48) * 4;
  EXPECT_EQ(total_of(ledger.at_rest), 3 * all + 64);
  EXPECT_EQ(bytes(ledger.peaks, MemoryCategory::kGathered), 0);
  EXPECT_EQ(bytes(ledger.peaks, MemoryCategory::kGradients), all + kLookup);
  EXPECT_EQ(ledger.timeline.back().live, 4 * all + 64);
}

// Of four lanes, when the last is in its first block: two open nodes of the tree in every unit (lanes 0 + 1, and 2), the root's of the newest lane,
// whose lookup segment comes later, and that block's.
TEST(Ledger, OpenLanesHoldAFullGradientEach) {
  Case c;
  c.options.num_micro_batches = 4;
  EXPECT_EQ(bytes(c.ledger().peaks, MemoryCategory::kGradients), 2 * (3 * kFull + kLookup) + 2 * kFull);
}

TEST(Ledger, FrozenUnitsHaveNoMomentsAndKeepNoGradient) {
  Case c;
  for (const std::size_t block : {1, 2}) c.units[block].frozen = true;
  const Ledger ledger = c.ledger();
  EXPECT_EQ(bytes(ledger.at_rest, MemoryCategory::kOptimizer), 2 * kShard);
  EXPECT_EQ(ledger.timeline.back().live - total_of(ledger.at_rest), kShard) << "the root's gradient shard";
}

TEST(Ledger, AnEvaluationKeepsNothingAndLeavesNothing) {
  const Case c;
  const StepProgram program = build_evaluation_program(c.spec, c.units, c.options);
  const Ledger ledger = make_ledger(program, c.spec, c.units, c.groups);
  EXPECT_EQ(ledger.timeline.back().live, total_of(ledger.at_rest));
  EXPECT_EQ(ledger.peak() - total_of(ledger.at_rest), 3 * kFull + 80);
}

TEST(Ledger, ATimelineHasAtMostAsManyRowsAsAskedForAndMarksThePeak) {
  Case c;
  c.options.num_micro_batches = 2;
  for (const int most : {1, 3, 24}) {
    const std::vector<TimelineRow> rows = timeline_rows(c.program(), c.ledger(), most);
    EXPECT_LE(static_cast<int>(rows.size()), most);
    int peaks = 0;
    for (const TimelineRow& row : rows) {
      if (!row.is_peak) continue;
      ++peaks;
      EXPECT_EQ(row.peak, c.ledger().peak());
    }
    EXPECT_EQ(peaks, 1);
  }
  // The peak is in the second micro-batch: the first is one row.
  EXPECT_EQ(timeline_rows(c.program(), c.ledger(), 24).front().part, "micro 0: forward embedding … backward embedding");
}

}  // namespace
}  // namespace tessera
