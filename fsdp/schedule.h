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

// How long a unit's full parameter stays once it is gathered. (The root unit stays at least until its micro-batch is through.)
enum class FullParameters : std::uint8_t {
  kSegment,     // while its segments run: gathered again for backward (full_shard, hybrid_shard)
  kMicroBatch,  // from its forward to its backward (reshard_after_forward: false)
  kStep,        // from the first forward of the step to the last backward (shard_grad_op)
  kAlways,      // nothing is gathered (no_shard)
};

struct ScheduleOptions {
  int num_micro_batches = 1;       // of this rank in one step
  int micro_batches_per_lane = 1;  // A: a lane's first micro-batch assigns gradients, the others add
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  int forward_prefetch_depth = 1;    // units whose all_gather is issued before the current unit's forward
  int max_inflight_all_gathers = 2;  // all_gathers issued and not yet waited for
  FullParameters full_parameters = FullParameters::kSegment;
  // false: a unit's gradients stay in full until all micro-batches are added, and are reduced once. true: the lanes' micro-batches of one index
  // are added and reduced, then those of the next, whose shards are added to the first: another order of the sum.
  bool reduce_every_micro_batch = false;
  std::string shard_group =
      "dp:0";  // whose members hold the shards; "": each rank holds all, nothing is gathered or scattered
  std::string replica_group;  // whose members hold the same shards, and add their gradients after that; "": none
  std::string title;
};

// One optimizer step. A frozen unit's gradient is dropped where another's would be reduced.
StepProgram build_training_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                   const ScheduleOptions& options);
// Forward and losses of num_micro_batches micro-batches.
StepProgram build_evaluation_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                     const ScheduleOptions& options);
// Forward of one micro-batch, then the logits of one position: one generated token.
StepProgram build_token_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                const ScheduleOptions& options);

}  // namespace tessera
