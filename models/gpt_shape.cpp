#include "models/gpt_shape.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"

namespace tessera {
namespace {

template <typename Kind, std::size_t N>
Kind parse(std::string_view key, const std::string& value,
           const std::array<std::pair<std::string_view, Kind>, N>& kinds) {
  std::string names;
  for (const auto& [name, kind] : kinds) {
    if (name == value) return kind;
    names += fmt::format("{}{}", names.empty() ? "" : "|", name);
  }
  throw ConfigError(fmt::format("model.{}: {} is none of {}", key, value, names));
}

void positive(std::string_view key, std::int64_t value) {
  if (value < 1) throw ConfigError(fmt::format("{}: {} is not positive", key, value));
}

}  // namespace

GptShape gpt_shape(const ModelConfig& model, std::int64_t micro_batch_size) {
  using ops::ActivationKind;
  using ops::NormKind;
  static constexpr std::array norms = {std::pair{std::string_view("layernorm"), NormKind::kLayerNorm},
                                       std::pair{std::string_view("rmsnorm"), NormKind::kRmsNorm}};
  static constexpr std::array activations = {std::pair{std::string_view("gelu"), ActivationKind::kGelu},
                                             std::pair{std::string_view("gelu_tanh"), ActivationKind::kGeluTanh},
                                             std::pair{std::string_view("relu"), ActivationKind::kRelu},
                                             std::pair{std::string_view("silu"), ActivationKind::kSilu},
                                             std::pair{std::string_view("swiglu"), ActivationKind::kSwiGlu},
                                             std::pair{std::string_view("geglu"), ActivationKind::kGeGlu}};
  static constexpr std::array positions = {std::pair{std::string_view("learned"), false},
                                           std::pair{std::string_view("rope"), true}};
  static constexpr std::array scalings = {std::pair{std::string_view("none"), ops::RopeScaling::kNone},
                                          std::pair{std::string_view("linear"), ops::RopeScaling::kLinear},
                                          std::pair{std::string_view("llama3"), ops::RopeScaling::kLlama3}};

  positive("batch.micro_batch_size", micro_batch_size);
  positive("model.num_layers", model.num_layers);
  positive("model.num_heads", model.num_heads);
  positive("model.num_kv_heads", model.kv_heads());
  positive("model.hidden_size", model.hidden_size);
  positive("model.head_dim", model.head_size());
  positive("model.intermediate_size", model.feed_forward_size());
  positive("model.seq_len", model.seq_len);
  positive("model.vocab_size", model.vocab_size);
  if (!model.head_dim && model.hidden_size % model.num_heads != 0)
    throw ConfigError(
        fmt::format("model.hidden_size: {} is not a multiple of num_heads {}", model.hidden_size, model.num_heads),
        "set model.head_dim");
  if (model.num_heads % model.kv_heads() != 0)
    throw ConfigError(
        fmt::format("model.num_heads: {} is not a multiple of num_kv_heads {}", model.num_heads, model.kv_heads()));
  if (model.dropout != 0.0) throw ConfigError(fmt::format("model.dropout: {} is not available yet", model.dropout));

  GptShape s;
  s.batch = micro_batch_size;
  s.seq = model.seq_len;
  s.layers = model.num_layers;
  s.hidden = model.hidden_size;
  s.intermediate = model.feed_forward_size();
  s.query_heads = model.num_heads;
  s.kv_heads = model.kv_heads();
  s.head_dim = model.head_size();
  s.vocabulary = model.vocab_size;
  s.norm = parse("norm", model.norm, norms);
  s.norm_eps = static_cast<float>(model.norm_eps);
  s.activation = parse("activation", model.activation, activations);
  s.rope = parse("positions", model.positions, positions);
  s.rope_frequencies = {.theta = model.rope_theta,
                        .scaling = parse("rope_scaling", model.rope_scaling, scalings),
                        .factor = model.rope_factor,
                        .low_freq_factor = model.rope_low_freq_factor,
                        .high_freq_factor = model.rope_high_freq_factor,
                        .original_seq_len = static_cast<double>(model.rope_original_seq_len)};
  s.bias = model.bias;
  s.norm_bias = model.bias && s.norm == NormKind::kLayerNorm;
  s.tied = model.tie_word_embeddings;
  s.init_std = model.init_std;
  if (s.rope && s.head_dim % 2 != 0)
    throw ConfigError(fmt::format("model.head_dim: {} is odd, but rope turns pairs", s.head_dim));
  return s;
}

}  // namespace tessera
