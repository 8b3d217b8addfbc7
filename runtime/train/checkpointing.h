// The saves of a running job: when its writer is opened, what it is given, when it goes on.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "checkpoint/file_system.h"
#include "checkpoint/rank_exchange.h"
#include "checkpoint/writer.h"
#include "runtime/train/executor.h"
#include "runtime/train/run_state.h"

namespace tessera {

// Of one rank. Functions marked collective throw the same AgreedError (exit code 5) on all ranks where a save fails on any; older checkpoints
// are then as they were.
class Checkpointing {
 public:
  struct Options {
    std::string directory;  // RUN/checkpoints
    std::uint64_t run_id = 0;
    CheckpointConfig config;
    std::int64_t staging_bytes = 0;  // as the plan predicts them
    // Told of each save that is complete, and of the seconds from the first copy to the last sync.
    std::function<void(const SavedCheckpoint&, double seconds)> on_saved;
  };
  // References outlive the object. Where checkpoint.every is set, staging memory is taken here, else when a save begins.
  Checkpointing(FileSystem& files, RankExchange& ranks, Options options, ShardedModel& model, AdamWOptimizer& optimizer,
                Allocator& allocator, StreamView compute);

  // The run continues at a step that its directory has a checkpoint of.
  void resumed_at(std::int64_t step) { last_saved_ = step; }
  // Whether the directory has a complete checkpoint.
  bool any() const { return last_saved_.has_value(); }
  bool is_due(std::int64_t step) const { return options_.config.every > 0 && step % options_.config.every == 0; }
  // A run that has checkpoints gets one of its last step: that it is finished must be known from them.
  bool saves_last_step() const { return options_.config.every > 0 || any(); }

  // Collective. Copies the state; writes it while training goes on, or at once where checkpoint.asynchronous is false. Nothing where the step is
  // saved already.
  void begin(const RunFacts& facts, const Progress& at);
  // Whether this rank's part of the save under way is done: for the agreement that the step makes anyway.
  bool ready() const { return writer_ && writer_->ready(); }
  // Collective, after every step: its loss completes the certificate of the state before it, and a save that all ranks are ready for goes on.
  void after_step(const StepOutcome& outcome);
  // Collective: waits until nothing is under way.
  void finish();

 private:
  void open_writer();
  void agreed(const std::function<void()>& work);
  void end(const std::optional<SavedCheckpoint>& saved);
  std::vector<SourceSlice> slices() const;

  FileSystem& files_;
  RankExchange& ranks_;
  Options options_;
  ShardedModel& model_;
  AdamWOptimizer& optimizer_;
  Allocator& allocator_;
  StreamView compute_;
  std::optional<CheckpointWriter> writer_;
  std::optional<ResumeCertificate> certificate_;  // of the save under way, until a step completes it
  std::optional<std::int64_t> last_saved_;
  double began_ = 0;
};

}  // namespace tessera
