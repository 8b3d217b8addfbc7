// Walks a step program on the device's streams. All decisions are in the list; the executor only carries them out.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fsdp/sharded_model.h"
#include "models/gpt.h"
#include "runtime/program/step_program.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/communicator_set.h"
#include "runtime/train/optimizer.h"

namespace tessera {

struct ExecutorStreams {
  StreamView compute, gather, reduce;
};

// What one run of a program is given …
struct StepInput {
  std::int64_t step = 0;  // for tags: the update being attempted
  const StepBatch* batch = nullptr;
  bool stop_requested = false;            // this rank was asked to stop
  bool save_ready = false;                // this rank's part of a save under way is done
  double learning_rate = 0.0;             // of kUpdate
  double schedule_factor = 1.0;           // … and what the schedule makes of a rate of 1
  std::int64_t logits_row = 0;            // of kLogits
  LossKind loss_kind = LossKind::kPlain;  // of kEvaluateHead
  // What the program check compares with, where chaos makes this rank execute another program.
  const StepProgram* expected = nullptr;
};

// … and what the ranks agreed on in it.
struct StepOutcome {
  std::int64_t num_targets = 0;
  double loss = 0.0;  // mean over targets, before the update; 0 where there are none
  double max_loss = 0.0;
  double grad_norm = 0.0;                              // before clipping
  bool updated = false;                                // false: skipped, parameters and moments are untouched
  bool stop = false;                                   // some rank was asked to stop
  bool save_ready = false;                             // every rank's part of a save under way is done
  double first_loss = 0.0;                             // mean of micro-batch 0 of the global batch
  std::vector<int> non_finite_ranks;                   // logical ranks whose losses or gradient shards were not finite
  std::int64_t allocated_peak = 0, reserved_peak = 0;  // bytes, maximum over ranks
};

// What the ranks agreed on in an evaluation batch.
struct EvaluationOutcome {
  LossSum losses;     // of all ranks; max_loss of this one
  bool stop = false;  // some rank was asked to stop
};

class Chaos;
class ProgramCheck;
class TraceRecorder;
enum class TraceClass : std::uint8_t;

class Executor {
 public:
  struct Options {
    std::int64_t ignore_index = -100;
    double clip_norm = 0.0;
    bool compare_histories = false;  // of all communicators, once a step (collectives.fingerprint: step)
    // Compares the calls with the program; null: nobody does. Outlives the executor.
    ProgramCheck* check = nullptr;
    // Deliberate faults of this rank; null: none. Outlives the executor.
    Chaos* chaos = nullptr;
    // Times the instructions; null: nobody does. Outlives the executor.
    TraceRecorder* trace = nullptr;
  };
  Executor(ShardedModel& model, AdamWOptimizer* optimizer, GptRunner& runner, CommunicatorSet& communicators,
           Device& device, ExecutorStreams streams, const Options& options);
  ~Executor();

  // A training step. update: the number of the update it makes where it is not skipped.
  StepOutcome train(const StepProgram& program, const StepInput& input);
  // An evaluation batch: exact sums, to be added over batches.
  EvaluationOutcome evaluate(const StepProgram& program, const StepInput& input);
  // One token: the logits of input.logits_row.
  void logits(const StepProgram& program, const StepInput& input, std::span<float> out);

 private:
  struct Run;  // the state of one walk
  Run& begin(const StepInput& input);
  void walk(const StepProgram& program, Run& run);
  void execute(const StepProgram& program, const Instruction& instruction, Run& run);
  void agree_tokens(const Instruction& instruction, Run& run);
  void agree_norm(const Instruction& instruction, Run& run);
  void agree_loss(const Instruction& instruction, Run& run);
  void update(Run& run);
  CollectiveTag tag(const StepProgram& program, const Instruction& instruction, const Run& run) const;
  StreamView stream(StreamId id) const;
  void compare_histories(std::int64_t step);
  // What the host does next in the current instruction, for the trace.
  void enter(TraceClass trace_class);

  ShardedModel& model_;
  AdamWOptimizer* optimizer_;
  GptRunner& runner_;
  CommunicatorSet& communicators_;
  Device& device_;
  ExecutorStreams streams_;
  Options options_;
  std::unique_ptr<Run> run_;  // outlives an exception: a stream may still write into it
};

}  // namespace tessera
