// Builders of step programs: pure functions from units and policies to the list of instructions.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/parameter_spec.h"
#include "runtime/program/step_program.h"

namespace tessera {

enum class BackwardPrefetch : std::uint8_t {
  kPre,  // the next unit's all_gather is issued before the current unit's backward: overlaps it, two units are full at once
  kPost,  // … after the current unit's backward, before its reduce_scatter
  kNone,  // … when it is needed
};

struct ScheduleOptions {
  int num_micro_batches = 1;       // of this rank in one step
  int micro_batches_per_lane = 1;  // A: a lane's first micro-batch assigns gradients, the others add
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  int forward_prefetch_depth = 1;    // units whose all_gather is issued before the current unit's forward
  int max_inflight_all_gathers = 2;  // all_gathers issued and not yet waited for
  bool reshard_after_forward = true;
  std::string shard_group = "dp:0";  // whose members hold the shards
  std::string title;
};

// One optimizer step of full_shard with `reduce: once`. The root unit (units[0]) stays full from its first use to the end of the
// micro-batch's backward; other units are resharded after forward (by policy) and after backward.
StepProgram build_training_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                   const ScheduleOptions& options);
// Forward and losses of num_micro_batches micro-batches.
StepProgram build_evaluation_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                     const ScheduleOptions& options);
// Forward of one micro-batch, then the logits of one position: one generated token.
StepProgram build_token_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                const ScheduleOptions& options);

}  // namespace tessera
