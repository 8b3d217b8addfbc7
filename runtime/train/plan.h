// Everything a run will do, as plain data, before it does anything: units, programs, FLOPs, memory; for plan.json, the header and `tessera plan`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fsdp/ledger.h"
#include "fsdp/policy.h"
#include "parallel/mesh.h"
#include "runtime/config/load.h"
#include "runtime/program/parameter_spec.h"
#include "runtime/program/step_program.h"

namespace tessera {

struct TrainContext;
struct NumericsRecord;

struct Plan {
  ResolvedBatch batch;
  MeshShape mesh;
  int logical_rank = 0;
  ModelSpec model;
  std::vector<UnitSpec> units;
  ShardGroups groups;
  ScheduleOptions schedule;  // of the programs
  StepProgram program, evaluation_program;
  // The forward of each rank's micro-batch 0: for the certificate of a save that sees no further step.
  StepProgram first_loss_program;
  // What the run allocates, to the byte (fsdp/ledger.h). Of an evaluation and of a generated token only where the run has any.
  Ledger memory, first_loss_memory;
  std::optional<Ledger> evaluation_memory, token_memory;
  // The copy of its state that this rank saves: held all the time where checkpoint.every is set, else for the save on request alone.
  std::int64_t staging_bytes = 0;

  // Model FLOPs of one step on one rank: 3 × forward (products and attention) × micro-batches.
  double step_flops() const;
  // Bytes of parameters, gradients and moments that this rank keeps: 16 per element of its shards.
  std::int64_t state_bytes() const;
  // The peak of the run, and the instruction at which it is reached: "backward block.3".
  struct Peak {
    std::int64_t bytes = 0;
    std::string place;
  };
  Peak peak() const;
  std::string json() const;
  std::string json(const NumericsRecord& numerics) const;
  // The lines a run begins with.
  std::string header(const TrainContext& context, const std::string& data_note, std::int64_t num_steps) const;
};

// A pure function of its arguments; num_threads: of the device, whose operators take scratch for each. ConfigError where the step has too many micro-batches to be written down, or a
// group of the optimizer matches no parameter.
Plan make_plan(const JobConfig& config, const ResolvedBatch& batch, const MeshShape& mesh, int logical_rank,
               int num_threads);

}  // namespace tessera
