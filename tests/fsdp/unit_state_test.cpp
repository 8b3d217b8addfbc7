#include "fsdp/unit_state.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace tessera {
namespace {

TEST(UnitState, AParameterGoesRoundInThreeSteps) {
  ParameterState state = ParameterState::kSharded;
  state = next(state, ParameterEvent::kUnshard, "block.0");
  EXPECT_EQ(state, ParameterState::kGathering);
  state = next(state, ParameterEvent::kWait, "block.0");
  EXPECT_EQ(state, ParameterState::kFull);
  EXPECT_EQ(next(state, ParameterEvent::kReshard, "block.0"), ParameterState::kSharded);
}

TEST(UnitState, WhatTheTableDoesNotHoldIsRefusedByName) {
  try {
    next(ParameterState::kFull, ParameterEvent::kUnshard, "block.3");
    FAIL() << "a full unit was unsharded again";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "unit block.3: the parameter cannot unshard while full");
  }
  EXPECT_THROW(next(ParameterState::kGathering, ParameterEvent::kReshard, "root"), InternalError);
  EXPECT_THROW(next(ParameterState::kSharded, ParameterEvent::kWait, "root"), InternalError);
  EXPECT_THROW(next(GradientState::kNone, GradientEvent::kReduce, "root"), InternalError);
  EXPECT_THROW(next(GradientState::kReducing, GradientEvent::kBeginLane, "root"), InternalError);
  EXPECT_THROW(next(GradientState::kReduced, GradientEvent::kReduce, "root"), InternalError);
}

TEST(UnitState, AReducedGradientMayOpenTheNextMicroBatchAndBeReducedOverReplicasFirst) {
  GradientState state = GradientState::kPartial;
  for (const GradientEvent event : {GradientEvent::kReduce, GradientEvent::kReduce, GradientEvent::kWaitReduce,
                                    GradientEvent::kBeginLane, GradientEvent::kReduce, GradientEvent::kWaitReduce}) {
    state = next(state, event, "block.0");
  }
  EXPECT_EQ(state, GradientState::kReduced);
}

}  // namespace
}  // namespace tessera
