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

enum class WhenWritten : std::uint8_t {
  kBehindSteps,  // while training goes on
  kAtOnce        // no step follows
};

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
    // Collective, for saves that do not see the next step: the loss of its micro-batch 0, by a forward alone.
    std::function<double(const Progress&)> next_loss;
    // What there is to add to the error of a save that failed: a line, or "". May be empty.
    std::function<std::string()> explain_failure;
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

  // Collective. Copies the state; writes it while training goes on, or at once: then it returns when the checkpoint is published. Where
  // checkpoint.asynchronous is false every save is written at once. Nothing where the step is saved already.
  void begin(const RunFacts& facts, const Progress& at, WhenWritten when);
  // Whether this rank's part of the save under way is done: for the agreement that the step makes anyway.
  bool ready() const { return writer_ && writer_->ready(); }
  // Collective, after every step: its loss completes the certificate of the state before it, and a save that all ranks are ready for goes on.
  void after_step(const StepOutcome& outcome);
  // Collective: waits until nothing is under way.
  void finish();
  // Collective, where the run ends with an error that all ranks agreed on: publishes what is under way, since its state was good; without the loss
  // in its certificate where the next step has not come. What goes wrong stays unsaid: the first error is the one to hear about.
  void finish_after_error() noexcept;

 private:
  void open_writer();
  void agreed(const std::function<void()>& work);
  void certify(double loss);
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
  std::optional<Progress> uncertified_;  // the save under way, until its certificate has the next step's loss
  ResumeCertificate certificate_;        // of rank 0: without that loss
  std::optional<std::int64_t> last_saved_;
  double began_ = 0;
};

}  // namespace tessera
