// Text from the weights in memory: every rank runs the same program on the same tokens; only the caller prints.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fsdp/schedule.h"
#include "runtime/train/executor.h"
#include "runtime/train/sampling.h"
#include "runtime/train/tokenizer.h"

namespace tessera {

struct SamplerOptions {
  std::int64_t num_tokens = 160;
  SamplingOptions sampling;
};

class Sampler {
 public:
  // config.model.seq_len bounds the context. schedule: as the training program's. check: see Executor::Options.
  Sampler(const JobConfig& config, ShardedModel& model, CommunicatorSet& communicators, Device& device,
          ExecutorStreams streams, const ScheduleOptions& schedule, ProgramCheck* check);
  ~Sampler();

  // Continues `prompt` (at least one token) by options.num_tokens tokens; returns the new ones. Positions follow the last seq_len tokens.
  std::vector<std::uint32_t> generate(std::vector<std::uint32_t> prompt, const SamplerOptions& options,
                                      std::int64_t step);

 private:
  struct Window;  // a runner and program for one context length
  Window& window_for(std::int64_t length);

  JobConfig config_;
  ShardedModel& model_;
  CommunicatorSet& communicators_;
  Device& device_;
  ExecutorStreams streams_;
  ScheduleOptions schedule_;
  ProgramCheck* check_;
  std::vector<std::unique_ptr<Window>> windows_;
};

}  // namespace tessera
