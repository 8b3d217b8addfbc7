// What a deliberate fault does to a step program: pure functions from list to list.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/program/step_program.h"

namespace tessera {

// A prefetch that comes too early: two consecutive unshards of one group, of different units with equal shards, in the wrong order. The unit
// states stay legal, so nothing but the order of the calls is wrong. shard_sizes: elements, by unit. nullopt where no such pair is.
struct SwappedProgram {
  StepProgram program;
  int unit = -1;  // whose unshard comes too early
};
std::optional<SwappedProgram> swap_unshards(const StepProgram& program, const std::vector<std::int64_t>& shard_sizes);

// The same; ConfigError where no such pair is.
SwappedProgram require_swap(const StepProgram& program, const std::vector<std::int64_t>& shard_sizes);

// The program without its first collective of that name ("": of any), which must be there: whoever waited for it no longer does.
StepProgram leave_out_collective(StepProgram program, std::string_view op);

// One broadcast more, which nobody reads, before the step's last agreement.
StepProgram add_rehearsal_broadcast(const StepProgram& program);

}  // namespace tessera
