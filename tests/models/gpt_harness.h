// A whole GPT on one CPU device for tests: parameters, gradients per segment, and the calls of a step in order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/gpt.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera::test {

// Tokens and targets of one micro-batch, i32 [B*S].
struct Tokens {
  std::vector<std::int32_t> inputs, targets;
  MicroBatch view() const;
};
// Any tokens below vocabulary; targets are inputs of another stream.
Tokens random_tokens(const ModelConfig& model, std::int64_t micro_batch_size, std::uint64_t seed);

// Families at their smallest: 2 layers, hidden 32, 4 heads, seq 16, vocabulary 67.
ModelConfig small_gpt2();
ModelConfig small_llama();

class GptHarness {
 public:
  GptHarness(const ModelConfig& model, std::int64_t micro_batch_size, int num_threads = 1, const LossConfig& loss = {});
  ~GptHarness();

  // The formula of tools/make_reference.py.
  void fill_weights(std::uint64_t seed);

  // Forward and backward of one micro-batch.
  LossSum step(const Tokens& tokens, bool accumulate, float gradient_scale);
  // forward_only and evaluate_head.
  LossSum evaluate(const Tokens& tokens);
  // Forward of all blocks, then logits of every row, [B*S, V].
  std::vector<float> all_logits(const Tokens& tokens);

  const ModelSpec& spec() const { return spec_; }
  CpuDevice& device() { return device_; }
  GptRunner& runner() { return *runner_; }
  std::span<TensorView> parameters(int segment) { return parameters_[static_cast<std::size_t>(segment)]; }
  std::span<TensorView> gradients(int segment) { return gradients_[static_cast<std::size_t>(segment)]; }
  int num_segments() const { return static_cast<int>(spec_.segments.size()); }
  // Elements of parameter k of the table, and of its gradient in one segment (k-th of that segment).
  std::span<float> parameter(int index);
  std::span<float> gradient(int segment, int position);
  // "block.0.attention.query.weight"; the head's matrix is "head.weight" also where tied.
  std::string gradient_name(int segment, int position) const;
  // Every gradient of every segment, one after the other.
  std::vector<float> all_gradients();
  void fill_gradients(float value);
  std::int64_t allocated(MemoryCategory category);

 private:
  TensorView make(const Shape& shape, MemoryCategory category);

  CpuDevice device_;
  Stream stream_;
  ModelSpec spec_;
  std::vector<Buffer> buffers_;
  std::vector<TensorView> table_;
  std::vector<std::vector<TensorView>> parameters_, gradients_;  // by segment
  std::unique_ptr<GptRunner> runner_;
};

}  // namespace tessera::test
