// Everything a run will do, as plain data, before it does anything: units, programs, FLOPs, memory; for plan.json, the header and `tessera plan`.
#pragma once

#include <string>
#include <vector>

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

  // Model FLOPs of one step on one rank: 3 × forward (products and attention) × micro-batches.
  double step_flops() const;
  // Bytes of parameters, gradients and moments that this rank keeps: 16 per element of its shards.
  std::int64_t state_bytes() const;
  // An estimate of the peak from above: state, full gradients of open lanes, full parameters, activations of one micro-batch, scratch. (When
  // each of them lives, and so the peak to a few percent, is the memory ledger's, which comes with its own feature.)
  std::int64_t predicted_bytes() const;
  // What the peak certainly reaches: parameters, gradients and moments at the update, or, where that is more, what exists when the first
  // micro-batch has come to the head: parameters, moments, its activations, and the root unit's parameters and gradient in full.
  std::int64_t least_bytes() const;
  // DeviceError where a job of at least least_bytes() cannot fit `limit` bytes (0: none). "" where the estimate fits as well, otherwise a warning.
  std::string check_memory(std::int64_t limit) const;
  std::string json() const;
  std::string json(const NumericsRecord& numerics) const;
  // The lines a run begins with.
  std::string header(const TrainContext& context, const std::string& data_note, std::int64_t num_steps) const;
};

// A pure function of its arguments. ConfigError where the step has too many micro-batches to be written down, or a
// group of the optimizer matches no parameter.
Plan make_plan(const JobConfig& config, const ResolvedBatch& batch, const MeshShape& mesh, int logical_rank,
               int num_threads);

}  // namespace tessera
