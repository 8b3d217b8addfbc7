// config.json of others ↔ the model section.
#include "runtime/config/huggingface_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

const json kGpt2 = {{"model_type", "gpt2"}, {"n_layer", 2},      {"n_head", 3},
                    {"n_embd", 24},         {"n_positions", 16}, {"vocab_size", 61}};
const json kLlama = {{"model_type", "llama"}, {"num_hidden_layers", 2},  {"num_attention_heads", 4},
                     {"hidden_size", 32},     {"intermediate_size", 40}, {"vocab_size", 61}};

json with(json config, const json& change) {
  config.update(change);
  return config;
}

HuggingFaceModel read(const json& config) {
  return read_huggingface_config(config.dump(), "c.json");
}

// What is wrong with a config, without its path and hint.
std::string problem(const json& config) {
  try {
    read(config);
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("c.json: ")) << text;
    return text.substr(8);
  }
  return "";
}

TEST(HuggingFaceConfig, OfGpt2TakesWhatTransformersTakesForAbsentFields) {
  const HuggingFaceModel gpt2 = read({{"model_type", "gpt2"}});  // the 124M model
  EXPECT_EQ(gpt2.layout, HuggingFaceLayout::kGpt2);
  EXPECT_EQ(gpt2.model.num_layers, 12);
  EXPECT_EQ(gpt2.model.num_heads, 12);
  EXPECT_EQ(gpt2.model.hidden_size, 768);
  EXPECT_EQ(gpt2.model.seq_len, 1024);
  EXPECT_EQ(gpt2.model.vocab_size, 50257);
  EXPECT_EQ(gpt2.model.feed_forward_size(), 3072);
  EXPECT_EQ(gpt2.model.activation, "gelu_tanh");
  EXPECT_EQ(gpt2.model.norm_eps, 1e-5);
  EXPECT_TRUE(gpt2.model.bias);
  EXPECT_TRUE(gpt2.model.tie_word_embeddings);
}

TEST(HuggingFaceConfig, FieldsOfTheFirstGpt2FilesChangeNothing) {
  const json old = {{"n_special", 0}, {"predict_special_tokens", true}, {"output_past", true}, {"_num_labels", 1}};
  EXPECT_EQ(problem(with(kGpt2, old)), "");
  EXPECT_EQ(problem(with(kGpt2, {{"n_special", 3}})), "n_special: 3 is not implemented (0)");
}

TEST(HuggingFaceConfig, OfLlamaTakesWhatTransformersTakesForAbsentFields) {
  const HuggingFaceModel llama = read(kLlama);
  EXPECT_EQ(llama.layout, HuggingFaceLayout::kLlama);
  EXPECT_EQ(llama.model.kv_heads(), 4);
  EXPECT_EQ(llama.model.head_dim, std::nullopt);
  EXPECT_EQ(llama.model.seq_len, 2048);
  EXPECT_EQ(llama.model.norm, "rmsnorm");
  EXPECT_EQ(llama.model.norm_eps, 1e-6);
  EXPECT_EQ(llama.model.activation, "swiglu");
  EXPECT_EQ(llama.model.positions, "rope");
  EXPECT_EQ(llama.model.rope_theta, 10000.0);
  EXPECT_EQ(llama.model.rope_scaling, "none");
  EXPECT_FALSE(llama.model.bias);
  EXPECT_FALSE(llama.model.tie_word_embeddings);
  EXPECT_EQ(read(with(kLlama, {{"head_dim", 16}})).model.head_dim, 16);
}

TEST(HuggingFaceConfig, RopeIsReadInTheOldAndTheNewSpelling) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.5},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  const ModelConfig old_spelling = read(with(kLlama, {{"rope_theta", 5e5}, {"rope_scaling", llama3}})).model;
  EXPECT_EQ(old_spelling.rope_theta, 5e5);
  EXPECT_EQ(old_spelling.rope_scaling, "llama3");
  EXPECT_EQ(old_spelling.rope_factor, 8.0);
  EXPECT_EQ(old_spelling.rope_low_freq_factor, 1.5);
  EXPECT_EQ(old_spelling.rope_high_freq_factor, 4.0);
  EXPECT_EQ(old_spelling.rope_original_seq_len, 8192);
  EXPECT_EQ(read(with(kLlama, {{"rope_parameters", with(llama3, {{"rope_theta", 5e5}})}})).model, old_spelling);

  const ModelConfig linear = read(with(kLlama, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}})).model;
  EXPECT_EQ(linear.rope_scaling, "linear");
  EXPECT_EQ(linear.rope_factor, 2.0);
  const json unchanged = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  EXPECT_EQ(read(with(kLlama, unchanged)).model, read(kLlama).model);
  EXPECT_EQ(read(with(kLlama, {{"rope_scaling", nullptr}})).model, read(kLlama).model);
  EXPECT_EQ(read(with(kLlama, {{"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}}})).model.rope_scaling, "none");
}

TEST(HuggingFaceConfig, RefusesByNameAndValueWhatWouldComputeSomethingElse) {
  EXPECT_EQ(problem({{"model_type", "mistral"}}), "model_type: mistral is not implemented (gpt2, llama)");
  EXPECT_EQ(problem(json::object()), "model_type: missing (gpt2, llama)");
  const auto gpt2 = [](const json& change) { return problem(with(kGpt2, change)); };
  EXPECT_EQ(gpt2({{"activation_function", "mish"}}).substr(0, 53),
            "activation_function: mish is not implemented for gpt2");
  EXPECT_EQ(gpt2({{"scale_attn_weights", false}}), "scale_attn_weights: false is not implemented (true)");
  EXPECT_EQ(gpt2({{"scale_attn_by_inverse_layer_idx", true}}),
            "scale_attn_by_inverse_layer_idx: true is not implemented (false)");
  EXPECT_EQ(gpt2({{"reorder_and_upcast_attn", true}}), "reorder_and_upcast_attn: true is not implemented (false)");
  EXPECT_EQ(gpt2({{"add_cross_attention", true}}), "add_cross_attention: true is not implemented (false)");
  EXPECT_EQ(gpt2({{"rope_theta", 1}}), "rope_theta: 1 is not known");
  EXPECT_EQ(gpt2({{"n_head", 5}}), "model.hidden_size: 24 is not a multiple of num_heads 5");
  EXPECT_EQ(gpt2({{"n_layer", "two"}}), "n_layer: found \"two\", expected an integer above 0");
  EXPECT_EQ(gpt2({{"n_layer", 0}, {"n_head", 1.5}, {"tie_word_embeddings", 1}}),
            "n_layer: found 0, expected an integer above 0; n_head: found 1.5, expected an integer above 0; "
            "tie_word_embeddings: found 1, expected true or false")
      << "all at once";
  const auto llama = [](const json& change) { return problem(with(kLlama, change)); };
  EXPECT_EQ(llama({{"hidden_act", "relu"}}),
            "hidden_act: relu is not implemented for llama (silu, swish, gelu, gelu_python)");
  EXPECT_EQ(llama({{"sliding_window", 4096}}), "sliding_window: 4096 is not implemented (null)");
  EXPECT_EQ(llama({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor: 0.5 is not implemented (1.0)");
  EXPECT_EQ(llama({{"attention_bias", true}}),
            "mlp_bias: false with attention_bias true is not implemented: model.bias is of both");
  EXPECT_EQ(llama({{"layer_types", {"full_attention", "sliding_attention"}}}),
            "layer_types: \"sliding_attention\" is not implemented (full_attention)");
  EXPECT_EQ(llama({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
            "rope_scaling.rope_type: yarn is not implemented (default, linear, llama3)");
  EXPECT_EQ(llama({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}}),
            "rope_scaling.rope_type: dynamic is not implemented (default, linear, llama3)");
  EXPECT_EQ(llama({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 4.0}, {"low_freq_factor", 1.0}}}}),
            "rope_scaling.high_freq_factor: missing; rope_scaling.original_max_position_embeddings: missing");
  EXPECT_EQ(llama({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}}}),
            "rope_scaling.beta_fast: 32 is not implemented in rope_scaling linear");
  EXPECT_EQ(llama({{"quantization_config", {{"bits", 4}}}}),
            "quantization_config: {\"bits\":4} is not implemented (null)");
}

TEST(HuggingFaceConfig, SaysThatDropoutIsLeftOut) {
  const HuggingFaceModel model = read(with(kGpt2, {{"resid_pdrop", 0.1}, {"attn_pdrop", 0.0}}));
  EXPECT_EQ(model.notes, std::vector<std::string>{"resid_pdrop 0.1: Tessera trains without dropout"});
  EXPECT_EQ(model.model.dropout, 0.0);
}

TEST(HuggingFaceConfig, RefusesWhatIsNoJsonObjectAndDeepNesting) {
  const auto refusal = [](const std::string& text) {
    try {
      read_huggingface_config(text, "c.json");
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(""), "c.json: no JSON, at byte 1");
  EXPECT_EQ(refusal("[1]"), "c.json: is no JSON object");
  EXPECT_EQ(refusal("{\"a\": \xff}"), "c.json: no JSON, at byte 7");
  EXPECT_EQ(refusal(std::string(100000, '[')), "c.json: JSON nested deeper than 16 levels");
}

TEST(HuggingFaceConfig, WrittenAndReadIsTheSameModel) {
  for (const json& config :
       {kGpt2, with(kGpt2, {{"n_inner", 40}, {"activation_function", "relu"}, {"tie_word_embeddings", false}}),
        with(kGpt2, {{"layer_norm_epsilon", 1e-3}, {"initializer_range", 0.1}}), kLlama,
        with(kLlama, {{"head_dim", 16}, {"num_key_value_heads", 2}, {"hidden_act", "gelu"}}),
        with(kLlama, {{"attention_bias", true}, {"mlp_bias", true}, {"tie_word_embeddings", true}}),
        with(kLlama, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}, {"rope_theta", 5e5}}),
        with(kLlama, {{"rope_scaling",
                       {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}}}})}) {
    const HuggingFaceModel first = read(config);
    const SpecialTokens tokens{.bos = {1}, .eos = {2, 3}, .pad = {}};
    const HuggingFaceConfigFile written = write_huggingface_config(first.model, tokens);
    EXPECT_EQ(written.layout, first.layout);
    const HuggingFaceModel second = read_huggingface_config(written.text, "w.json");
    EXPECT_EQ(second.model, first.model) << written.text;
    EXPECT_EQ(second.tokens, tokens);
    EXPECT_EQ(second.notes, std::vector<std::string>{});
  }
}

TEST(HuggingFaceConfig, AModelThatNoLayoutExpressesIsRefusedFieldByField) {
  ModelConfig model = read(kGpt2).model;
  const auto refusal = [&] {
    try {
      write_huggingface_config(model, {});
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(), "");
  model.positions = "rope";
  model.bias = false;
  EXPECT_EQ(refusal(),
            "neither Hugging Face layout can express this model: model.positions: rope, which gpt2 has as learned; "
            "model.bias: false, which gpt2 has as true");
  model.bias = true;
  model.num_kv_heads = 1;
  model.activation = "swiglu";
  EXPECT_EQ(refusal(),
            "neither Hugging Face layout can express this model: model.norm: layernorm, which llama has as rmsnorm");
  model = read(kGpt2).model;
  model.positions = "rope";
  EXPECT_EQ(refusal(),
            "neither Hugging Face layout can express this model: model.positions: rope, which gpt2 has as learned");
}

TEST(HuggingFaceConfig, SpecialTokensAreNumbersListsOrNone) {
  const SpecialTokens tokens{.bos = {60}, .eos = {60, 61}, .pad = {}};
  EXPECT_EQ(read_special_tokens(write_special_tokens(tokens), "g.json"), tokens);
  EXPECT_TRUE(
      read_special_tokens(R"({"temperature": 0.6, "bos_token_id": null, "eos_token_id": -1})", "g.json").none());
  EXPECT_THROW(read_special_tokens(R"({"eos_token_id": "end"})", "g.json"), CheckpointError);
}

}  // namespace
}  // namespace tessera
