// A GPT's sizes and kinds, read once from the config: what every part of the model computes with.
#pragma once

#include <cstdint>

#include "runtime/config/job_config.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/norm.h"

namespace tessera {

// Letters as in gpt.h.
struct GptShape {
  std::int64_t batch = 0;  // B
  std::int64_t seq = 0;    // S
  std::int64_t layers = 0;
  std::int64_t hidden = 0;        // H
  std::int64_t intermediate = 0;  // I
  std::int64_t query_heads = 0;   // Hq
  std::int64_t kv_heads = 0;      // Hk
  std::int64_t head_dim = 0;      // D
  std::int64_t vocabulary = 0;    // V
  ops::NormKind norm = ops::NormKind::kLayerNorm;
  float norm_eps = 0;
  ops::ActivationKind activation = ops::ActivationKind::kGeluTanh;
  bool rope = false;  // else learned positions
  ops::RopeFrequencies rope_frequencies;
  bool bias = false;       // of linear layers
  bool norm_bias = false;  // layernorm with bias only
  bool tied = false;       // the head multiplies by the token table
  double init_std = 0;

  std::int64_t tokens() const { return batch * seq; }  // T
  std::int64_t query_size() const { return query_heads * head_dim; }
  std::int64_t kv_size() const { return kv_heads * head_dim; }
  bool gated() const { return ops::is_gated(activation); }
  bool layer_norm() const { return norm == ops::NormKind::kLayerNorm; }
  ops::AttentionShape attention() const { return {batch, seq, query_heads, kv_heads, head_dim}; }
};

// ConfigError naming the key and both values where the sizes contradict each other, a kind is unknown, or dropout (not
// available yet) is asked for.
GptShape gpt_shape(const ModelConfig& model, std::int64_t micro_batch_size);

}  // namespace tessera
