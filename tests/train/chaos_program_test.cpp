#include "runtime/train/chaos_program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/schedule.h"
#include "fsdp/unit_state.h"
#include "fsdp/units.h"
#include "tests/support/tiny_model.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

StepProgram training(int num_blocks, const ScheduleOptions& options = {}, const std::string& wrap = "block") {
  const ModelSpec model = test::tiny_model(num_blocks);
  return build_training_program(model, make_units(model, wrap), options);
}

std::vector<std::string> head(const StepProgram& program, std::size_t n) {
  std::vector<std::string> texts = program.texts();
  texts.resize(n);
  return texts;
}

// The life of every unit's parameter is legal, and every wait names the instruction it named before.
void expect_legal(const StepProgram& program) {
  std::vector<ParameterState> states(program.unit_names.size(), ParameterState::kSharded);
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    for (const int wait : i.waits) ASSERT_LT(wait, static_cast<int>(n));
    if (i.unit < 0) continue;
    ParameterState& state = states[static_cast<std::size_t>(i.unit)];
    const std::string& name = program.unit_names[static_cast<std::size_t>(i.unit)];
    if (i.op == OpCode::kUnshard) state = next(state, ParameterEvent::kUnshard, name);
    if (i.op == OpCode::kWaitUnshard) {
      state = next(state, ParameterEvent::kWait, name);
      const Instruction& awaited = program.instructions[static_cast<std::size_t>(i.waits.at(0))];
      EXPECT_EQ(awaited.op, OpCode::kUnshard);
      EXPECT_EQ(awaited.unit, i.unit);
    }
    if (i.op == OpCode::kReshard) state = next(state, ParameterEvent::kReshard, name);
  }
}

TEST(SwapUnshards, IssuesTheSecondBlockBeforeTheFirst) {
  const StepProgram program = training(2);
  const auto swapped = swap_unshards(program, {90, 40, 40});
  ASSERT_TRUE(swapped);
  EXPECT_EQ(swapped->unit, 2);
  EXPECT_EQ(head(swapped->program, 9),
            (Texts{"agree tokens", "unshard root", "wait root", "unshard block.1", "unshard block.0",
                   "forward embedding", "wait block.0", "forward block.0", "reshard block.0"}));
  expect_legal(swapped->program);
  Texts before = program.texts(), after = swapped->program.texts();
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  EXPECT_EQ(after, before) << "the same instructions";
}

TEST(SwapUnshards, StaysLegalUnderEveryPolicy) {
  for (const BackwardPrefetch prefetch : {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
    for (const int depth : {0, 1, 3}) {
      for (const bool reshard : {false, true}) {
        const auto swapped = swap_unshards(
            training(4, {.num_micro_batches = 2,
                         .backward_prefetch = prefetch,
                         .forward_prefetch_depth = depth,
                         .max_inflight_all_gathers = 4,
                         .full_parameters = reshard ? FullParameters::kSegment : FullParameters::kMicroBatch}),
            {40, 40, 40, 40, 40});
        ASSERT_TRUE(swapped);
        expect_legal(swapped->program);
      }
    }
  }
}

TEST(SwapUnshards, LeavesPairsOfUnequalSizeAlone) {
  EXPECT_FALSE(swap_unshards(training(2), {90, 40, 41}));
  EXPECT_EQ(swap_unshards(training(3), {90, 40, 41, 41})->unit, 3);
  EXPECT_FALSE(swap_unshards(training(2, {}, "root"), {90}));
}

TEST(RehearsalBroadcast, StandsBeforeTheAgreementAndShiftsWhatWaits) {
  const StepProgram program = training(2);
  const StepProgram rehearsal = add_rehearsal_broadcast(program);
  Texts expected = program.texts();
  expected.insert(expected.end() - 2, "rehearse broadcast");
  EXPECT_EQ(rehearsal.texts(), expected);
  const Instruction& update = rehearsal.instructions.back();
  EXPECT_EQ(rehearsal.text(rehearsal.instructions[static_cast<std::size_t>(update.waits.at(0))]),
            "agree norm, finite, stop");
  EXPECT_EQ(collective_of(OpCode::kRehearseBroadcast), "broadcast");
}

}  // namespace
}  // namespace tessera
