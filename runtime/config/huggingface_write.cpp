// Model section → config.json.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/config/huggingface_activations.h"
#include "runtime/config/huggingface_config.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string_view their_activation(HuggingFaceLayout layout, std::string_view ours) {
  for (const config::ActivationName& each : config::kActivationNames)
    if (each.layout == layout && each.ours == ours) return each.theirs;
  return {};
}

// One text for each field of the model that the layout has otherwise.
std::vector<std::string> obstacles(const ModelConfig& model, HuggingFaceLayout layout) {
  const bool gpt2 = layout == HuggingFaceLayout::kGpt2;
  std::vector<std::string> found;
  const auto has_to_be = [&](std::string_view field, const std::string& value, std::string_view expected) {
    if (value != expected)
      found.push_back(fmt::format("model.{}: {}, which {} has as {}", field, value, name_of(layout), expected));
  };
  has_to_be("norm", model.norm, gpt2 ? "layernorm" : "rmsnorm");
  has_to_be("positions", model.positions, gpt2 ? "learned" : "rope");
  if (their_activation(layout, model.activation).empty())
    found.push_back(fmt::format("model.activation: {}, which {} does not have", model.activation, name_of(layout)));
  if (!gpt2) return found;
  has_to_be("bias", model.bias ? "true" : "false", "true");
  has_to_be("num_kv_heads", fmt::format("{}", model.kv_heads()), fmt::format("{}", model.num_heads));
  has_to_be("head_dim", fmt::format("{}", model.head_size()), fmt::format("{}", model.hidden_size / model.num_heads));
  return found;
}

// The layout that comes nearest.
HuggingFaceLayout layout_of(const ModelConfig& model) {
  HuggingFaceLayout nearest = HuggingFaceLayout::kGpt2;
  if (obstacles(model, HuggingFaceLayout::kLlama).size() < obstacles(model, nearest).size())
    nearest = HuggingFaceLayout::kLlama;
  if (const auto found = obstacles(model, nearest); !found.empty())
    throw CheckpointError(
        fmt::format("neither Hugging Face layout can express this model: {}", fmt::join(found, "; ")));
  return nearest;
}

OrderedJson json_of(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? OrderedJson(ids.front()) : OrderedJson(ids);
}

void add_tokens(const SpecialTokens& tokens, OrderedJson& json) {
  json["bos_token_id"] = json_of(tokens.bos);
  json["eos_token_id"] = json_of(tokens.eos);
  if (!tokens.pad.empty()) json["pad_token_id"] = json_of(tokens.pad);
}

OrderedJson gpt2_json(const ModelConfig& model) {
  return {{"architectures", OrderedJson::array({"GPT2LMHeadModel"})},
          {"model_type", "gpt2"},
          {"vocab_size", model.vocab_size},
          {"n_positions", model.seq_len},
          {"n_embd", model.hidden_size},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"n_inner", model.feed_forward_size()},
          {"activation_function", their_activation(HuggingFaceLayout::kGpt2, model.activation)},
          {"layer_norm_epsilon", model.norm_eps},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"reorder_and_upcast_attn", false}};
}

OrderedJson rope_scaling_json(const ModelConfig& model) {
  if (model.rope_scaling == "none") return nullptr;
  OrderedJson rope = {{"rope_type", model.rope_scaling}, {"factor", model.rope_factor}};
  if (model.rope_scaling == "llama3") {
    rope["low_freq_factor"] = model.rope_low_freq_factor;
    rope["high_freq_factor"] = model.rope_high_freq_factor;
    rope["original_max_position_embeddings"] = model.rope_original_seq_len;
  }
  return rope;
}

// rope_theta and rope_scaling: the spelling that every release reads.
OrderedJson llama_json(const ModelConfig& model) {
  return {{"architectures", OrderedJson::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"vocab_size", model.vocab_size},
          {"max_position_embeddings", model.seq_len},
          {"hidden_size", model.hidden_size},
          {"intermediate_size", model.feed_forward_size()},
          {"num_hidden_layers", model.num_layers},
          {"num_attention_heads", model.num_heads},
          {"num_key_value_heads", model.kv_heads()},
          {"head_dim", model.head_size()},
          {"hidden_act", their_activation(HuggingFaceLayout::kLlama, model.activation)},
          {"rms_norm_eps", model.norm_eps},
          {"rope_theta", model.rope_theta},
          {"rope_scaling", rope_scaling_json(model)},
          {"attention_bias", model.bias},
          {"mlp_bias", model.bias},
          {"attention_dropout", 0.0}};
}

}  // namespace

HuggingFaceConfigFile write_huggingface_config(const ModelConfig& model, const SpecialTokens& tokens) {
  HuggingFaceConfigFile file{.layout = layout_of(model)};
  OrderedJson json = file.layout == HuggingFaceLayout::kGpt2 ? gpt2_json(model) : llama_json(model);
  json["tie_word_embeddings"] = model.tie_word_embeddings;
  json["initializer_range"] = model.init_std;
  add_tokens(tokens, json);
  json["use_cache"] = true;
  json["torch_dtype"] = "float32";
  file.text = json.dump(2) + "\n";
  return file;
}

std::string write_special_tokens(const SpecialTokens& tokens) {
  OrderedJson json = {{"_from_model_config", true}};
  add_tokens(tokens, json);
  return json.dump(2) + "\n";
}

}  // namespace tessera
