// What a checkpoint keeps of a run besides its tensors (checkpoint/training_state.h), and what the run sees next.
#pragma once

#include <cstdint>

#include "checkpoint/fields.h"
#include "checkpoint/training_state.h"
#include "parallel/mesh.h"
#include "runtime/config/job_config.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/numerics.h"

namespace tessera {

// Where a run stands between two steps.
struct Progress {
  std::int64_t step = 0;     // updates made
  std::int64_t batch = 0;    // global batches consumed: a skipped update consumes its batch
  std::int64_t skipped = 0;  // updates
  friend bool operator==(const Progress&, const Progress&) = default;
};

// What stays as it is while a run goes on. References outlive the struct.
struct RunFacts {
  const JobConfig& config;
  const MeshShape& mesh;
  const BatchLoader& loader;
  const NumericsRecord& numerics;
  const ScheduleConfig& schedule;  // with decay_steps as resolved at the first start
};

// The config with what its first start resolved: what decides bits must not depend on a later start's ranks.
JobConfig resolved_config(const JobConfig& config, std::int64_t lanes);

// What the parameters mean, field by field; absent keys as what they amount to.
Fields model_fields(const ModelConfig& model);
Fields numerics_fields(const NumericsRecord& numerics);

// The index of the batch that the next step trains on.
std::int64_t next_batch(const JobConfig& config, const BatchLoader& loader, const Progress& at);

// What the next step begins with; its loss, which only that step knows, is not a number.
ResumeCertificate certificate_of_next_step(const RunFacts& facts, const Progress& at);

TrainingState training_state(const RunFacts& facts, const Progress& at);
Progress progress_of(const TrainingState& state);

}  // namespace tessera
