// Text from the weights in memory: every rank runs the same program on the same tokens; only the caller prints.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fsdp/schedule.h"
#include "runtime/train/executor.h"
#include "runtime/train/sampling.h"
#include "runtime/train/tokenizer.h"

namespace tessera {

inline constexpr std::int64_t kSampleTokens = 160;

struct SamplerOptions {
  std::int64_t num_tokens = kSampleTokens;
  SamplingOptions sampling;
  std::int64_t num_choices = 0;  // the ids below it: a vocabulary may be padded beyond its tokenizer's; 0: all
  std::vector<std::uint32_t> stop_tokens;       // the text ends with the first of them
  std::function<void(std::uint32_t)> on_token;  // told of each new token; may be empty
};

// The model with the context (seq_len) that a text of `length` tokens runs in. Contexts are cut to powers of two, so that short texts do not pay for
// all of seq_len; what lies behind the last token is causally invisible. A learned table of positions is gathered whole, so its contexts are whole too.
ModelConfig sampler_model(const ModelConfig& model, std::int64_t length);
// The schedule of a token program in a job with this one.
ScheduleOptions token_schedule(ScheduleOptions training);

class Sampler {
 public:
  // config.model.seq_len bounds the context. schedule: as the training program's. check: see Executor::Options.
  Sampler(const JobConfig& config, ShardedModel& model, CommunicatorSet& communicators, Device& device,
          ExecutorStreams streams, const ScheduleOptions& schedule, ProgramCheck* check);

  // Continues `prompt` (at least one token) by options.num_tokens tokens, fewer where a stop token comes; returns the new ones, that token
  // included. The model sees the last seq_len tokens, at positions from 0. What it allocates lasts as long as the call.
  std::vector<std::uint32_t> generate(std::vector<std::uint32_t> prompt, const SamplerOptions& options,
                                      std::int64_t step);

 private:
  JobConfig config_;
  ShardedModel& model_;
  CommunicatorSet& communicators_;
  Device& device_;
  ExecutorStreams streams_;
  StepProgram program_;  // of one token, whatever its context
  ProgramCheck* check_;
};

}  // namespace tessera
