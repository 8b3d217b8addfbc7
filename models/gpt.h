// GPT as a parameter table and segments with explicit forward and backward. Two families from one description: GPT-2
// (layernorm, learned positions, GELU, biases, tied) and Llama (rmsnorm, rope, SwiGLU, grouped-query attention,
// untied).
//
// Legend: B sequences per micro-batch, S positions, T = B*S, H hidden_size, I intermediate_size, Hq/Hk query and kv
// heads, D head_dim, V vocabulary.
//
// Parameter names and order (Linear weights are [out, in]); bias entries only where model.bias, position only where
// learned:
//   embedding.token.weight [V, H]; embedding.position.weight [S, H]
//   block.L.attention_norm.{weight,bias} [H]; block.L.attention.{query [Hq*D, H], key, value [Hk*D, H], output [H,
//   Hq*D]}.{weight,bias} block.L.feed_forward_norm.{weight,bias}; block.L.feed_forward.gate.{weight,bias} [I, H] (gated
//   kinds only); block.L.feed_forward.up.{weight,bias} [I, H]; block.L.feed_forward.down.{weight,bias} [H, I]
//   final_norm.{weight,bias} [H]; head.weight [V, H] (only where not tied; never a bias)
// Norm biases exist for layernorm with model.bias only. Initial values: matrices N(0, init_std), the two projections
// into the residual stream (attention.output, feed_forward.down) N(0, init_std / √(2 num_layers)), gains 1, biases 0.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/base/exact_sum.h"
#include "runtime/config/job_config.h"
#include "runtime/device/device.h"
#include "runtime/device/tensor_view.h"
#include "runtime/program/parameter_spec.h"

namespace tessera {

// The table. micro_batch_size is B, for the memory and FLOPs of the segments. ConfigError where sizes contradict each
// other or a kind is unknown. Memory is the allocator's, to the byte, in fp32, and follows the calls of GptRunner below.
// constant_bytes: rope's tables. FLOPs: the causal half of attention, lookups none. num_threads: of the device.
ModelSpec describe_gpt(const ModelConfig& model, std::int64_t micro_batch_size, int num_threads = 1);

// One micro-batch. tokens, targets: i32 [B*S] in host memory of the device; targets may be empty where no loss is asked
// for.
struct MicroBatch {
  ConstTensorView tokens, targets;
};

// Label smoothing and z_loss shape the training; a measure that held them could not be compared with any other model's.
enum class LossKind : std::uint8_t {
  kPlain,    // cross-entropy alone
  kTraining  // as LossConfig has it
};

// What one micro-batch's head says.
struct LossSum {
  ExactSum sum;                  // of the fp32 token losses that are not ignored
  float max_loss = 0;            // largest token loss, NaN if one is; -inf where all are ignored
  std::int64_t num_targets = 0;  // not ignored
};

// Views of a segment's parameters (or gradients), in the order of SegmentSpec::parameters. A tied table appears in both
// "embedding" and "head"; its two gradients are different views.
using ParameterViews = std::span<const TensorView>;

// Runs segments of one micro-batch at a time per slot; owns the activations between forward and backward (kActivations)
// and the residual stream.
class GptRunner {
 public:
  GptRunner(const ModelConfig& model, const LossConfig& loss, std::int64_t micro_batch_size, Device& device,
            StreamView compute);
  ~GptRunner();

  // Segments by index: 0 embedding, 1 … num_layers blocks, num_layers + 1 head.
  // Training forward of embedding or block; saves what backward needs. slot: which micro-batch in flight (0 without
  // pipelining).
  void forward(int segment, const MicroBatch& batch, ParameterViews parameters, int slot = 0);
  // The head with its loss, forward and backward in one (gradients of rows scaled by gradient_scale, see
  // ops::head_loss): assigns or adds the head's gradients, leaves the residual gradient for the last block.
  LossSum head_loss(const MicroBatch& batch, ParameterViews parameters, ParameterViews gradients, bool accumulate,
                    float gradient_scale, int slot = 0);
  // Backward of block or embedding; assigns or adds (accumulate) gradients; frees what forward saved.
  void backward(int segment, const MicroBatch& batch, ParameterViews parameters, ParameterViews gradients,
                bool accumulate, int slot = 0);

  // Evaluation: nothing is saved, dropout off; call forward_only for segments in order, then evaluate_head or logits.
  void forward_only(int segment, const MicroBatch& batch, ParameterViews parameters, int slot = 0);
  // Frees the last block's output.
  LossSum evaluate_head(const MicroBatch& batch, ParameterViews parameters, LossKind kind = LossKind::kPlain,
                        int slot = 0);
  // Logits [V] of one position (row of B*S) after the last block, whose output stays, into out.
  void logits(std::int64_t row, ParameterViews parameters, std::span<float> out, int slot = 0);

  // Drops all activations (after an error, a skip, an evaluation).
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
