#include "runtime/train/chaos_program.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// What was at `from` is at `to` <= from, what was between them one further on.
int moved(int index, int from, int to) {
  if (index == from) return to;
  return index >= to && index < from ? index + 1 : index;
}

StepProgram move_forward(StepProgram program, int from, int to) {
  auto& list = program.instructions;
  std::rotate(list.begin() + to, list.begin() + from, list.begin() + from + 1);
  for (Instruction& i : list) {
    for (int& wait : i.waits) wait = moved(wait, from, to);
  }
  return program;
}

// Whether instruction `from` may run before instruction `to`: its unit must be sharded there, and what it waits for be earlier still.
bool may_move(const std::vector<Instruction>& list, int from, int to) {
  const Instruction& i = list[static_cast<std::size_t>(from)];
  const bool free = std::none_of(list.begin() + to, list.begin() + from,
                                 [&](const Instruction& between) { return between.unit == i.unit; });
  return free && std::all_of(i.waits.begin(), i.waits.end(), [&](int wait) { return wait < to; });
}

}  // namespace

std::optional<SwappedProgram> swap_unshards(const StepProgram& program, const std::vector<std::int64_t>& shard_sizes) {
  const auto& list = program.instructions;
  const auto size = [&](int unit) { return shard_sizes.at(static_cast<std::size_t>(unit)); };
  int before = -1;
  for (int n = 0; n < static_cast<int>(list.size()); ++n) {
    const Instruction& i = list[static_cast<std::size_t>(n)];
    if (i.op != OpCode::kUnshard) continue;
    if (before >= 0) {
      const Instruction& first = list[static_cast<std::size_t>(before)];
      if (first.group == i.group && first.unit != i.unit && size(first.unit) == size(i.unit) &&
          may_move(list, n, before)) {
        return SwappedProgram{move_forward(program, n, before), i.unit};
      }
    }
    before = n;
  }
  return std::nullopt;
}

SwappedProgram require_swap(const StepProgram& program, const std::vector<std::int64_t>& shard_sizes) {
  if (auto swapped = swap_unshards(program, shard_sizes)) return *std::move(swapped);
  throw ConfigError("chaos: swap_collectives needs two units of equal size that are gathered in a row",
                    "fsdp.wrap: block, two layers or more, and a strategy that gathers");
}

StepProgram leave_out_collective(StepProgram program, std::string_view op) {
  auto& list = program.instructions;
  const auto at = std::ranges::find_if(list, [&](const Instruction& i) {
    return !collective_of(i.op).empty() && (op.empty() || collective_of(i.op) == op);
  });
  if (at == list.end()) throw ConfigError(fmt::format("chaos: a step makes no {}", op));
  const int gone = static_cast<int>(at - list.begin());
  list.erase(at);
  for (Instruction& i : list) {
    std::erase(i.waits, gone);
    for (int& wait : i.waits) wait -= wait > gone ? 1 : 0;
  }
  return program;
}

StepProgram add_rehearsal_broadcast(const StepProgram& program) {
  StepProgram out = program;
  const auto at = std::find_if(out.instructions.begin(), out.instructions.end(),
                               [](const Instruction& i) { return i.op == OpCode::kAgreeNorm; });
  require(at != out.instructions.end(), "a training program ends in an agreement");
  const int index = static_cast<int>(at - out.instructions.begin());
  out.instructions.push_back(
      {.op = OpCode::kRehearseBroadcast, .stream = StreamId::kReduce, .group = "world", .phase = "update"});
  return move_forward(std::move(out), static_cast<int>(out.instructions.size()) - 1, index);
}

}  // namespace tessera
