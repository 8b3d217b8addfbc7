// Where a start of a run begins: fresh, or at a checkpoint; and whether that checkpoint is of this job.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_exchange.h"
#include "runtime/config/changes.h"
#include "runtime/ops/isa.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/run_state.h"

namespace tessera {

// What the checkpoint that a start would resume from decides before the job is resolved for its ranks.
struct StoredChoices {
  std::int64_t lanes = 1;
  std::string instruction_set;
};
// Reads without owning the directory: resume() has the last word, and says what is wrong where this finds nothing. resume: checkpoint.resume.
std::optional<StoredChoices> stored_choices(const std::string& run_directory, const std::string& resume);

// `reproducibility.lanes: auto` takes the stored value.
void adopt_lanes(JobConfig& config, const std::optional<StoredChoices>& stored);

// Its instruction set where this processor has it, else the best that there is: products depend on it.
Isa isa_to_resume_with(const std::string& run_directory, const std::string& resume);

struct ResumeRequest {
  const RunFacts& facts;
  const TokenDataset& data;                  // of all files that there are now
  std::vector<std::string> allowed_changes;  // keys of --allow-change
  std::string checkpoints;                   // of the run directory, which is owned
  // Runs a phase on every rank; where it throws on any, the same error leaves all (run_agreed).
  std::function<void(const std::function<void()>&)> agreed;
  // Told how the data goes on, before is_finished is asked.
  std::function<void(std::vector<DataPart>)> take_data;
  std::function<bool(const Progress&)> is_finished;
};

struct ResumedRun {
  std::string folder;
  Manifest manifest;
  Progress at;
  bool is_own = true;     // the checkpoint is in the run directory itself
  bool finished = false;  // nothing is left to do: nothing was loaded
  bool other_batches =
      false;  // by an allowed change, or because files join now: the certificate's batch is not the next one
  std::vector<KeyChange> changes;
  std::vector<std::string> data_notes;         // files that join, and when
  std::vector<SkippedCheckpoint> passed_over;  // newer checkpoints that do not load, and unfinished saves
  std::vector<std::string> notes;              // the same, and what has changed, to be said aloud

  bool changes_any(std::initializer_list<std::string_view> prefixes) const;
};

// Collective. Loads parameters and moments from the newest checkpoint that loads, or from the one that checkpoint.resume names; nothing where
// there is none. Refuses, on all ranks alike, a job that differs from the saved one in a key that neither may change nor is allowed to.
std::optional<ResumedRun> resume(FileSystem& files, RankExchange& ranks, const ResumeRequest& request,
                                 ShardedModel& model, AdamWOptimizer& optimizer, StreamView compute);

// Compares what the next step begins with; CheckpointError naming what differs. Items that a change was allowed for are passed over.
void check_certificate(const ResumedRun& run, const RunFacts& facts);
// Compares the loss of the first step's micro-batch 0. CheckpointError where the numerics record is equal and the loss is not; where the record
// differs, losses may by a thousandth. Returns what is to be said, "" for nothing.
std::string check_first_loss(const ResumedRun& run, const RunFacts& facts, double loss);

// "resumed step 57, dp 2 → 4, certificate ok".
std::string resumed_line(const ResumedRun& run, const MeshShape& mesh);
std::string finished_line(const ResumedRun& run, std::int64_t num_steps);

}  // namespace tessera
