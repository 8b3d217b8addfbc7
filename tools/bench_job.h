// A job to measure: what it trains, on random tokens in a folder of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job_config.h"

namespace tessera {

// GPT-2 124M, 4 sequences of 256 tokens a step.
JobConfig gpt2_124m();
// Two blocks of 32, 8 sequences of 16 tokens a step, four lanes: a job whose steps are mostly overhead.
JobConfig tiny_model();

// Gone with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// n values in [-0.5, 0.5).
std::vector<float> random_values(std::int64_t n, std::uint64_t stream);
void write_random_tokens(const std::string& path, std::int64_t count, std::int64_t vocab_size);
// What a job needs to train `steps` steps and nothing else, every step logged. The tokens at `path` are the caller's to write:
// num_tokens_for(config, steps).
void prepare_job(JobConfig& config, const std::string& path, std::int64_t steps);
std::int64_t num_tokens_for(const JobConfig& config, std::int64_t steps);

// step_seconds of a run's metrics, without the first `warmup` steps.
std::vector<double> step_seconds(const std::string& metrics_path, std::int64_t warmup);

}  // namespace tessera
