// What the training job of one rank is made of, and how its ranks agree. start() fills it (start.h); the trainer's loop goes on with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/communicator_exchange.h"
#include "checkpoint/file_system.h"
#include "fsdp/sharded_model.h"
#include "parallel/collective_log.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/chaos.h"
#include "runtime/train/checkpointing.h"
#include "runtime/train/communicator_set.h"
#include "runtime/train/executor.h"
#include "runtime/train/numerics.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/plan.h"
#include "runtime/train/program_check.h"
#include "runtime/train/reporter.h"
#include "runtime/train/resume.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_state.h"
#include "runtime/train/sampler.h"
#include "runtime/train/trace_recorder.h"
#include "runtime/train/trainer.h"

namespace tessera {

struct TrainingRun {
  // context outlives the run.
  explicit TrainingRun(const TrainContext& given);
  // Waits for what streams still hold. After an error this can take as long as their calls wait for peers.
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  bool first() const { return context.world_rank == 0; }
  // In which checkpoints lie; chaos may stand in front.
  FileSystem& files() const;
  Communicator& world() const { return communicators->find("world", StreamId::kReduce); }
  ExecutorStreams streams() const { return {compute.view(), gather.view(), reduce.view()}; }
  RunFacts facts() const;
  bool is_finished(const Progress& progress) const;

  // Collective: the same error leaves all ranks where one of them throws.
  void agreed(const std::function<void()>& phase) const;
  // Collective: every rank throws the same error where their values differ.
  void same_everywhere(std::uint64_t value, ExitCode code, const char* message) const;
  // Collective: the smallest of all ranks' values.
  std::uint64_t agree_min(std::uint64_t value, const char* what) const;
  // Collective: state_hash as text. AgreedError where ranks that hold the same shards hold other bits.
  std::string hash() const;

  // On the terminal (rank 0) and in the log of this rank.
  void say(const std::vector<std::string>& lines) const;

  const TrainContext& context;
  const JobConfig& config;
  int logical_rank;
  RunDirectory directory;
  std::optional<RunLock> lock;  // of rank 0: the last to go
  // Destroyed in reverse: what uses a stream or a communicator goes before it.
  std::unique_ptr<CollectiveLog> calls;
  std::shared_ptr<Chaos> chaos;
  std::shared_ptr<TraceRecorder> trace;
  std::shared_ptr<ProgramObserver> observer = std::make_shared<ProgramObserver>();
  std::unique_ptr<FileSystem> host_files = make_posix_file_system(), chaos_files;
  std::unique_ptr<CommunicatorSet> communicators;
  Stream compute, gather, reduce;
  std::unique_ptr<CommunicatorExchange> exchange;
  Plan plan;
  std::optional<TokenDataset> train_data;  // of all files that there are
  std::optional<BatchLoader> loader;
  std::optional<EvaluationLoader> evaluation;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ShardedModel> model;
  std::unique_ptr<AdamWOptimizer> optimizer;
  std::unique_ptr<GptRunner> runner;
  std::unique_ptr<ProgramCheck> check;
  std::unique_ptr<Executor> executor;
  std::optional<Sampler> sampler;
  std::optional<Checkpointing> saves;
  std::unique_ptr<Reporter> reporter;
  std::optional<ResumedRun> resumed;
  ScheduleConfig schedule;  // with decay_steps resolved
  Progress at;
  NumericsRecord numerics;
  std::int64_t num_steps = 0;
  double save_seconds = 0;          // of the newest save
  std::int64_t predicted_peak = 0;  // bytes of a training step, the largest of all ranks
  std::uint64_t run_id = 0;
};

}  // namespace tessera
