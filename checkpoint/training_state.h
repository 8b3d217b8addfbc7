// What a run needs besides tensors to go on as if it had never stopped (docs/checkpoint-format.md, `training`). Plain data: the trainer fills
// it and reads it, the checkpoint only keeps it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/fields.h"

namespace tessera {

struct MeshRecord {
  int dp = 1, pp = 1, tp = 1;
  std::string strategy, wrap;
  friend bool operator==(const MeshRecord&, const MeshRecord&) = default;
};

// A file of tokens as it was read, by what is the same on every cluster.
struct DataFile {
  std::string name;  // without its folder
  std::int64_t tokens = 0;
  std::string format;
  std::int64_t source = 0;  // which entry of data.train named it
  friend bool operator==(const DataFile&, const DataFile&) = default;
};

struct DataCursor {
  std::int64_t next_batch = 0;  // global batches consumed so far: the index of the next
  std::int64_t epoch = 0;       // of that batch
  std::int64_t tokens_seen = 0;
  std::uint64_t order_digest = 0;  // of what decides which sequences batch n holds: files, their sizes, weights, seed
  // The files that the next batch is read from, in order, and the batch and epoch that they came into use with: others were there before where files
  // were appended. No files: the checkpoint was made before they were recorded.
  std::int64_t first_batch = 0, first_epoch = 0;
  std::vector<DataFile> files;
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

struct ScheduleState {
  std::int64_t updates = 0;      // made so far: bias corrections count them
  std::int64_t decay_steps = 0;  // as resolved at the first start
  friend bool operator==(const ScheduleState&, const ScheduleState&) = default;
};

struct LossScalerState {
  double scale = 1;
  std::int64_t good_steps = 0;  // since the scale last changed
  std::int64_t skipped_steps = 0;
  friend bool operator==(const LossScalerState&, const LossScalerState&) = default;
};

// Random numbers are functions of seed, purpose, step and index: no counter runs.
struct RngState {
  std::uint64_t seed = 0;
  friend bool operator==(const RngState&, const RngState&) = default;
};

// What the saving run saw in the step after the saved one. Whoever resumes there must see the same.
struct ResumeCertificate {
  std::uint64_t batch_digest = 0;
  double learning_rate = 0;
  std::uint64_t rng_digest = 0;
  double loss = 0;  // of micro-batch 0
  friend bool operator==(const ResumeCertificate&, const ResumeCertificate&) = default;
};

struct TrainingState {
  std::string config;  // the resolved job file
  MeshRecord mesh;     // of the ranks that saved
  DataCursor data;
  ScheduleState schedule;
  LossScalerState loss_scaler;
  RngState rng;
  Fields numerics;
  std::optional<ResumeCertificate> certificate;
  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

}  // namespace tessera
