// `tessera bench train`: a training job's speed against matrix products of the same seconds, and its memory against the sum of its parts.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct BenchTrainOptions {
  std::string config;      // "": GPT-2 124M, 4 × 256 tokens, fp32, one rank
  std::int64_t steps = 8;  // timed, after warmup
  std::int64_t warmup = 2;
  int threads = 2;
  bool json = false;
};

// One rank, in this process. Model FLOP/s = (6 × parameters in products × tokens + attention) ÷ step time. Two baselines: the products timed around
// every step (step_baseline.h), and the best single product of the run. Prints; returns the exit code.
int run_bench_train(const BenchTrainOptions& options);

struct BenchGemmOptions {
  int threads = 2;
  int repeats = 5;
  bool json = false;
};

// The products of a GPT-2 124M step (1,024 tokens): ours on a fixed grid against one library call on as many threads.
int run_bench_gemm(const BenchGemmOptions& options);

}  // namespace tessera
