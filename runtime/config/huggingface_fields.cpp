#include "runtime/config/huggingface_fields.h"

#include <algorithm>

namespace tessera::config {
namespace {

using Use = FieldUse;
using Rows = std::vector<FieldRow>;

// Of every model: what transformers' own base class writes, and what older releases kept of text generation here.
const Rows& common_rows() {
  static const Rows rows = {
      {"model_type", Use::kMapped},
      {"vocab_size", Use::kMapped},
      {"initializer_range", Use::kMapped},
      {"tie_word_embeddings", Use::kMapped},
      {"bos_token_id", Use::kMapped},
      {"eos_token_id", Use::kMapped},
      {"pad_token_id", Use::kMapped},
      {"is_encoder_decoder", Use::kFixed, {"false"}},
      {"add_cross_attention", Use::kFixed, {"false"}},
      {"cross_attention_hidden_size", Use::kFixed, {"null"}},
      {"tie_encoder_decoder", Use::kFixed, {"false"}},
      {"pruned_heads", Use::kFixed, {"{}", "null"}},
      {"quantization_config", Use::kFixed, {"null"}},
      {"auto_map", Use::kFixed, {"null"}},
      {"_attn_implementation"},
      {"_attn_implementation_autoset"},
      {"_name_or_path"},
      {"_num_labels"},
      {"architectures"},
      {"attn_implementation"},
      {"bad_words_ids"},
      {"begin_suppress_tokens"},
      {"chunk_size_feed_forward"},
      {"decoder_start_token_id"},
      {"diversity_penalty"},
      {"do_sample"},
      {"dtype"},
      {"early_stopping"},
      {"encoder_no_repeat_ngram_size"},
      {"exponential_decay_length_penalty"},
      {"finetuning_task"},
      {"forced_bos_token_id"},
      {"forced_eos_token_id"},
      {"gradient_checkpointing"},
      {"id2label"},
      {"is_decoder"},
      {"label2id"},
      {"length_penalty"},
      {"max_length"},
      {"min_length"},
      {"no_repeat_ngram_size"},
      {"num_beam_groups"},
      {"num_beams"},
      {"num_labels"},
      {"num_return_sequences"},
      {"output_attentions"},
      {"output_hidden_states"},
      {"output_scores"},
      {"prefix"},
      {"problem_type"},
      {"remove_invalid_values"},
      {"repetition_penalty"},
      {"return_dict"},
      {"return_dict_in_generate"},
      {"sep_token_id"},
      {"suppress_tokens"},
      {"task_specific_params"},
      {"temperature"},
      {"tf_legacy_loss"},
      {"tokenizer_class"},
      {"top_k"},
      {"top_p"},
      {"torch_dtype"},
      {"torchscript"},
      {"transformers_version"},
      {"typical_p"},
      {"use_bfloat16"},
      {"use_cache"},
  };
  return rows;
}

const Rows& gpt2_rows() {
  static const Rows rows = {
      {"n_layer", Use::kMapped},
      {"n_head", Use::kMapped},
      {"n_embd", Use::kMapped},
      {"n_inner", Use::kMapped},
      {"n_positions", Use::kMapped},
      {"activation_function", Use::kMapped},
      {"layer_norm_epsilon", Use::kMapped},
      {"scale_attn_weights", Use::kFixed, {"true"}},
      {"scale_attn_by_inverse_layer_idx", Use::kFixed, {"false"}},
      {"reorder_and_upcast_attn", Use::kFixed, {"false"}},
      {"resid_pdrop", Use::kDropout},
      {"embd_pdrop", Use::kDropout},
      {"attn_pdrop", Use::kDropout},
      {"n_ctx"},
      // Of the files that OpenAI's models were published with: gpt2-medium and larger.
      {"n_special", Use::kFixed, {"0"}},
      {"output_past"},
      {"predict_special_tokens"},
      // Of heads that classify.
      {"summary_activation"},
      {"summary_first_dropout"},
      {"summary_proj_to_labels"},
      {"summary_type"},
      {"summary_use_proj"},
  };
  return rows;
}

const Rows& llama_rows() {
  static const Rows rows = {
      {"num_hidden_layers", Use::kMapped},
      {"num_attention_heads", Use::kMapped},
      {"num_key_value_heads", Use::kMapped},
      {"head_dim", Use::kMapped},
      {"hidden_size", Use::kMapped},
      {"intermediate_size", Use::kMapped},
      {"max_position_embeddings", Use::kMapped},
      {"hidden_act", Use::kMapped},
      {"rms_norm_eps", Use::kMapped},
      {"rope_theta", Use::kMapped},
      {"rope_scaling", Use::kMapped},
      {"rope_parameters", Use::kMapped},
      {"attention_bias", Use::kMapped},
      {"mlp_bias", Use::kMapped},
      {"layer_types", Use::kMapped},
      {"partial_rotary_factor", Use::kFixed, {"1.0", "1", "null"}},
      {"sliding_window", Use::kFixed, {"null"}},
      {"use_sliding_window", Use::kFixed, {"false"}},
      {"attention_dropout", Use::kDropout},
      // The same product in slices.
      {"pretraining_tp"},
  };
  return rows;
}

const FieldRow* find(const Rows& rows, std::string_view name) {
  const auto row = std::ranges::find(rows, name, &FieldRow::name);
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

const FieldRow* find_field(HuggingFaceLayout layout, std::string_view name) {
  const FieldRow* row = find(layout == HuggingFaceLayout::kGpt2 ? gpt2_rows() : llama_rows(), name);
  return row != nullptr ? row : find(common_rows(), name);
}

}  // namespace tessera::config
