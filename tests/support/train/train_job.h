// Jobs for tests: the models of the field's failure cases, their data, and ranks as threads that run them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "fsdp/sharded_model.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/executor.h"
#include "runtime/train/plan.h"
#include "tests/support/temporary_directory.h"

namespace tessera::test {

// Model T: 2 layers, 4 heads, hidden 32, seq 16, vocab 64, global batch 8, micro-batch 2, lanes 4, AdamW 1e-3; `steps` steps, hashed each.
JobConfig model_t(std::int64_t steps);
// Model W: 2 layers, 12 heads, hidden 768, seq 128, vocab 4099, global batch 16, micro-batch 4, lanes 4.
JobConfig model_w(std::int64_t steps);
// The Llama family at T's size: rmsnorm, rope, SwiGLU, two kv heads, no biases, untied.
JobConfig llama_t(std::int64_t steps);

// A token file of `count` pseudo-random ids below vocab_size.
std::string write_tokens(const std::string& path, std::int64_t count, std::int64_t vocab_size, std::uint64_t seed = 1);
std::string write_tokens(const std::string& path, const std::vector<std::uint32_t>& tokens, std::int64_t vocab_size);

// Runs train() on `world` ranks as threads. Returns the lines of metrics.jsonl (of rank 0). An error of train() is rethrown (rank 0's).
std::vector<std::string> run_job(const JobConfig& config, int world, int threads, const std::string& run_directory);

// The same with ranks that may be asked to stop; returns the code that every rank ended with.
ExitCode run_until(const JobConfig& config, int world, int threads, const std::string& run_directory,
                   const std::function<bool(int rank)>& stop_requested);

// What each rank ends with: "4 message; hint: …" (exit code, the error's line); "" where it ends well.
std::vector<std::string> run_to_errors(const JobConfig& config, int world, const std::string& run_directory,
                                       const std::vector<std::string>& allowed_changes = {});

// What else a test gives the ranks of a job.
struct RankOptions {
  std::vector<std::string> allowed_changes = {};
  std::function<bool(int rank)> stop_requested = {};
  std::function<FileSystem*(int rank)> files = {};  // in which they keep checkpoints; empty: the host's
};
// As run_to_errors, with these.
std::vector<std::string> run_with(const JobConfig& config, int world, const std::string& run_directory,
                                  const RankOptions& options);

// The numbers of those lines that the promise covers: "kind/step loss max_loss grad_norm state_hash", one string per event.
std::vector<std::string> promised_numbers(const std::vector<std::string>& metrics);

// One rank with its parts in reach: what train() builds, for tests that look inside.
struct RankParts {
  const JobConfig& config;
  ResolvedBatch batch;
  Plan plan;
  CommunicatorSet& communicators;
  Device& device;
  ExecutorStreams streams;
  ShardedModel& model;
  AdamWOptimizer& optimizer;
  Executor& executor;
  int rank;

  // A full parameter by name, gathered from all ranks (a collective call).
  std::vector<float> gather(const std::string& name);
};
// Calls `body` for every rank, each in a thread of its own; the first exception is rethrown.
void run_ranks(const JobConfig& config, int world, const std::function<void(RankParts&)>& body);

}  // namespace tessera::test
