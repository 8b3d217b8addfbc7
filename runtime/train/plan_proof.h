// The proof of a job from the plan of one of its ranks: matching calls, and no deadlock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job_config.h"
#include "runtime/program/proof.h"
#include "runtime/train/plan.h"

namespace tessera {

// All ranks of the plan's mesh run `program` (the plan's training or evaluation program), each on its own groups: ranks of a mesh that divides dp
// alone differ in nothing else.
ProofResult prove_program(const Plan& plan, const StepProgram& program);

// What the deliberate faults make of the training program in the first step that one of them makes wrong, and whether its calls still match.
// Only what the list of instructions shows: swap_collectives and skip_collective. World rank = logical rank.
struct FaultyStep {
  std::int64_t step = 0;
  ProofResult proof;
};
// step 0: no fault shows. ConfigError as when the job starts, where there is nothing to swap.
FaultyStep prove_faulty_step(const Plan& plan, const std::vector<ChaosFault>& faults);

}  // namespace tessera
