// The life of a unit in a step, as two small machines with one transition table each. A state says what memory exists.
//
//   parameter: sharded   the shard only
//              gathering shard + full parameter being filled; nobody may read it
//              full      shard + full parameter
//   gradient:  none      nothing
//              partial   one full gradient per open node of the lane tree (and the gradient shard of earlier micro-batches, where those were reduced)
//              reducing  the last full gradient, being summed over ranks, and the gradient shard being filled
//              reduced   the gradient shard only
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class ParameterState : std::uint8_t { kSharded, kGathering, kFull };
enum class ParameterEvent : std::uint8_t { kUnshard, kWait, kReshard };
enum class GradientState : std::uint8_t { kNone, kPartial, kReducing, kReduced };
enum class GradientEvent : std::uint8_t { kBeginLane, kMerge, kReduce, kWaitReduce, kDrop };

std::string_view name_of(ParameterState state);
std::string_view name_of(GradientState state);

// The next state; InternalError naming unit, state and event for what the table does not hold.
ParameterState next(ParameterState state, ParameterEvent event, std::string_view unit);
GradientState next(GradientState state, GradientEvent event, std::string_view unit);

}  // namespace tessera
