// What a user sees while a run goes on, written by rank 0 alone: metrics.jsonl and the terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/train/trainer.h"

namespace tessera {

// One logged step; names as in metrics.jsonl.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0, max_loss = 0, learning_rate = 0, grad_norm = 0;
  std::int64_t tokens = 0, tokens_seen = 0, epoch = 0;
  double tokens_per_second = 0, step_seconds = 0, data_seconds = 0, tflops = 0;
  std::int64_t memory_allocated_peak = 0, memory_reserved_peak = 0;
  std::int64_t skipped_steps = 0;
  std::string state_hash;  // 16 hex digits, "" where this step is not hashed
};

class Reporter {
 public:
  // Appends to `metrics_path`; a reporter with an empty path (ranks other than 0) writes nothing.
  Reporter(const std::string& metrics_path, ProgressMode progress, std::int64_t num_steps);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  void start(std::int64_t step, const std::string& state_hash);
  void step(const StepMetrics& metrics);
  void skip(std::int64_t step, const std::vector<int>& world_ranks);
  void validation(std::int64_t step, double loss);
  // A block of text on the terminal, on lines of its own.
  void print(const std::string& text);
  void flush();

 private:
  void write(const std::string& line);

  std::FILE* metrics_ = nullptr;
  std::string path_;
  ProgressMode progress_;
  std::int64_t num_steps_;
  bool bar_open_ = false;
};

// "1.2 GiB", "37 MiB"; "1,234,567"; "412 ms", "3.1 s"; "13m", "2h05m".
std::string format_bytes(std::int64_t bytes);
std::string format_count(std::int64_t count);
std::string format_seconds(double seconds);
std::string format_eta(double seconds);

}  // namespace tessera
