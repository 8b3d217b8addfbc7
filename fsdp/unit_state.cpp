#include "fsdp/unit_state.h"

#include <fmt/format.h>

#include <array>

#include "runtime/base/error.h"

namespace tessera {
namespace {

template <typename State, typename Event>
struct Transition {
  State from;
  Event event;
  State to;
};

constexpr std::array<Transition<ParameterState, ParameterEvent>, 3> kParameterTable = {{
    {ParameterState::kSharded, ParameterEvent::kUnshard, ParameterState::kGathering},
    {ParameterState::kGathering, ParameterEvent::kWait, ParameterState::kFull},
    {ParameterState::kFull, ParameterEvent::kReshard, ParameterState::kSharded},
}};

constexpr std::array<Transition<GradientState, GradientEvent>, 10> kGradientTable = {{
    {GradientState::kNone, GradientEvent::kBeginLane, GradientState::kPartial},
    {GradientState::kPartial, GradientEvent::kBeginLane, GradientState::kPartial},
    {GradientState::kPartial, GradientEvent::kMerge, GradientState::kPartial},
    {GradientState::kPartial, GradientEvent::kReduce, GradientState::kReducing},
    {GradientState::kReducing, GradientEvent::kReduce, GradientState::kReducing},
    {GradientState::kReducing, GradientEvent::kWaitReduce, GradientState::kReduced},
    {GradientState::kReduced, GradientEvent::kBeginLane, GradientState::kPartial},
    {GradientState::kReduced, GradientEvent::kDrop, GradientState::kNone},
    {GradientState::kPartial, GradientEvent::kDrop, GradientState::kNone},
    {GradientState::kNone, GradientEvent::kDrop, GradientState::kNone},
}};

constexpr std::array<std::string_view, 3> kParameterEvents = {"unshard", "wait", "reshard"};
constexpr std::array<std::string_view, 5> kGradientEvents = {"begin lane", "merge", "reduce", "wait reduce", "drop"};

template <typename Table, typename State, typename Event>
State look_up(const Table& table, State state, Event event, std::string_view unit, std::string_view what,
              std::string_view event_name) {
  for (const auto& row : table) {
    if (row.from == state && row.event == event) return row.to;
  }
  throw InternalError(fmt::format("unit {}: {} cannot {} while {}", unit, what, event_name, name_of(state)));
}

}  // namespace

std::string_view name_of(ParameterState state) {
  constexpr std::array<std::string_view, 3> kNames = {"sharded", "gathering", "full"};
  return kNames.at(static_cast<std::size_t>(state));
}

std::string_view name_of(GradientState state) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "partial", "reducing", "reduced"};
  return kNames.at(static_cast<std::size_t>(state));
}

ParameterState next(ParameterState state, ParameterEvent event, std::string_view unit) {
  return look_up(kParameterTable, state, event, unit, "the parameter",
                 kParameterEvents.at(static_cast<std::size_t>(event)));
}

GradientState next(GradientState state, GradientEvent event, std::string_view unit) {
  return look_up(kGradientTable, state, event, unit, "the gradient",
                 kGradientEvents.at(static_cast<std::size_t>(event)));
}

}  // namespace tessera
