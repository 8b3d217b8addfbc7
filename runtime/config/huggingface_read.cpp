// config.json → model section.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runtime/base/error.h"
#include "runtime/config/huggingface_activations.h"
#include "runtime/config/huggingface_config.h"
#include "runtime/config/huggingface_fields.h"
#include "runtime/config/load.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using config::FieldRow;
using config::FieldUse;

constexpr int kMaxJsonDepth = 16;
constexpr std::size_t kMaxValueBytes = 60;
constexpr std::size_t kMaxProblems = 12;

Json parse_object(const std::string& text, const std::string& path) {
  const auto bounded = [&](int depth, Json::parse_event_t /*event*/, const Json& /*value*/) {
    if (depth > kMaxJsonDepth)
      throw CheckpointError(fmt::format("{}: JSON nested deeper than {} levels", path, kMaxJsonDepth));
    return true;
  };
  try {
    Json json = Json::parse(text, bounded);
    if (!json.is_object()) throw CheckpointError(fmt::format("{}: is no JSON object", path));
    return json;
  } catch (const Json::parse_error& error) {
    throw CheckpointError(fmt::format("{}: no JSON, at byte {}", path, error.byte));
  }
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxValueBytes) text = text.substr(0, kMaxValueBytes) + "…";
  return text;
}

// Fields of one object, each looked at once; what is wrong with them is collected.
class Object {
 public:
  Object(const Json& json, std::string prefix, std::vector<std::string>& problems)
      : json_(json), prefix_(std::move(prefix)), problems_(problems) {}

  const Json& json() const { return json_; }
  // Absent and null are the same.
  const Json* find(const char* name) const {
    const auto field = json_.find(name);
    return field == json_.end() || field->is_null() ? nullptr : &*field;
  }
  void refuse(std::string_view name, std::string_view problem) const {
    problems_.push_back(fmt::format("{}{}: {}", prefix_, name, problem));
  }
  void refuse_value(std::string_view name, const Json& value, std::string_view expected) const {
    refuse(name, fmt::format("found {}, expected {}", shown(value), expected));
  }

  std::int64_t count(const char* name, std::int64_t otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 53;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < 1 || value->get<std::uint64_t>() > kLargest) {
      refuse_value(name, *value, "an integer above 0");
      return 1;
    }
    return value->get<std::int64_t>();
  }
  double number(const char* name, std::optional<double> otherwise) const {
    const Json* value = find(name);
    if (value == nullptr && !otherwise) refuse(name, "missing");
    if (value == nullptr) return otherwise.value_or(1.0);
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() < 0) {
      refuse_value(name, *value, "a number");
      return otherwise.value_or(1.0);
    }
    return value->get<double>();
  }
  bool flag(const char* name, bool otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      refuse_value(name, *value, "true or false");
      return otherwise;
    }
    return value->get<bool>();
  }
  std::string text(const char* name, std::string_view otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return std::string(otherwise);
    if (!value->is_string()) {
      refuse_value(name, *value, "a text");
      return std::string(otherwise);
    }
    return value->get<std::string>();
  }

 private:
  const Json& json_;
  std::string prefix_;
  std::vector<std::string>& problems_;
};

std::vector<std::int64_t> token_ids(const Object& object, const char* name) {
  const Json* value = object.find(name);
  if (value == nullptr) return {};
  std::vector<std::int64_t> ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    // -1 is an old way to say that there is none.
    if (id.is_number_integer() && id.get<std::int64_t>() == -1) continue;
    if (!id.is_number_unsigned()) {
      object.refuse_value(name, *value, "a token's id, or a list of them");
      return {};
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

SpecialTokens special_tokens(const Object& object) {
  return {token_ids(object, "bos_token_id"), token_ids(object, "eos_token_id"), token_ids(object, "pad_token_id")};
}

std::string activation(const Object& object, HuggingFaceLayout layout, const char* name, std::string_view otherwise) {
  const std::string theirs = object.text(name, otherwise);
  std::vector<std::string_view> known;
  for (const config::ActivationName& each : config::kActivationNames) {
    if (each.layout != layout) continue;
    if (each.theirs == theirs) return std::string(each.ours);
    known.push_back(each.theirs);
  }
  object.refuse(name,
                fmt::format("{} is not implemented for {} ({})", theirs, name_of(layout), fmt::join(known, ", ")));
  return "gelu";
}

ModelConfig read_gpt2(const Object& object) {
  ModelConfig model;
  model.num_layers = object.count("n_layer", 12);
  model.num_heads = object.count("n_head", 12);
  model.hidden_size = object.count("n_embd", 768);
  model.seq_len = object.count("n_positions", 1024);
  model.vocab_size = object.count("vocab_size", 50257);
  model.intermediate_size = object.count("n_inner", 4 * model.hidden_size);
  model.norm = "layernorm";
  model.norm_eps = object.number("layer_norm_epsilon", 1e-5);
  model.activation = activation(object, HuggingFaceLayout::kGpt2, "activation_function", "gelu_new");
  model.positions = "learned";
  model.bias = true;
  model.tie_word_embeddings = object.flag("tie_word_embeddings", true);
  model.init_std = object.number("initializer_range", 0.02);
  return model;
}

// The object that older files call rope_scaling and newer ones rope_parameters.
void read_rope_object(const Object& rope, std::string_view name, ModelConfig& model) {
  std::string type = rope.text("rope_type", rope.text("type", "default"));
  std::set<std::string> known = {"rope_type", "type", "rope_theta"};
  if (type == "linear" || type == "llama3") {
    known.insert("factor");
    model.rope_factor = rope.number("factor", std::nullopt);
    model.rope_scaling = type;
  }
  if (type == "llama3") {
    known.merge(std::set<std::string>{"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    model.rope_low_freq_factor = rope.number("low_freq_factor", std::nullopt);
    model.rope_high_freq_factor = rope.number("high_freq_factor", std::nullopt);
    if (rope.find("original_max_position_embeddings") == nullptr)
      rope.refuse("original_max_position_embeddings", "missing");
    model.rope_original_seq_len = rope.count("original_max_position_embeddings", 8192);
  }
  if (type != "default" && model.rope_scaling == "none") {
    rope.refuse("rope_type", fmt::format("{} is not implemented (default, linear, llama3)", type));
    return;
  }
  for (const auto& [key, value] : rope.json().items()) {
    const bool whole = key == "partial_rotary_factor" && value.is_number() && value.get<double>() == 1.0;
    if (!known.contains(key) && !value.is_null() && !whole)
      rope.refuse(key, fmt::format("{} is not implemented in {} {}", shown(value), name, type));
  }
  // A factor of 1 leaves every frequency as it is.
  if (model.rope_factor == 1.0) model.rope_scaling = "none";
}

void read_rope(const Object& object, std::vector<std::string>& problems, ModelConfig& model) {
  model.positions = "rope";
  model.rope_theta = object.number("rope_theta", 10000.0);
  const Json *old_spelling = object.find("rope_scaling"), *new_spelling = object.find("rope_parameters");
  if (old_spelling != nullptr && new_spelling != nullptr && *old_spelling != *new_spelling)
    object.refuse("rope_scaling", "differs from rope_parameters");
  const char* name = new_spelling != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* value = new_spelling != nullptr ? new_spelling : old_spelling;
  if (value == nullptr) return;
  if (!value->is_object()) {
    object.refuse_value(name, *value, "an object");
    return;
  }
  const Object rope(*value, fmt::format("{}.", name), problems);
  read_rope_object(rope, name, model);
  if (rope.find("rope_theta") == nullptr) return;
  const double theta = rope.number("rope_theta", 10000.0);
  if (object.find("rope_theta") != nullptr && theta != model.rope_theta)
    object.refuse("rope_theta", fmt::format("{} differs from {}.rope_theta {}", model.rope_theta, name, theta));
  model.rope_theta = theta;
}

ModelConfig read_llama(const Object& object, std::vector<std::string>& problems) {
  ModelConfig model;
  model.num_layers = object.count("num_hidden_layers", 32);
  model.num_heads = object.count("num_attention_heads", 32);
  model.num_kv_heads = object.count("num_key_value_heads", model.num_heads);
  model.hidden_size = object.count("hidden_size", 4096);
  // Where it is what Tessera takes anyway, the key stays unset: one model has one config.
  const std::int64_t head_dim = object.count("head_dim", model.hidden_size / model.num_heads);
  if (model.hidden_size % model.num_heads != 0 || head_dim != model.head_size()) model.head_dim = head_dim;
  model.intermediate_size = object.count("intermediate_size", 11008);
  model.seq_len = object.count("max_position_embeddings", 2048);
  model.vocab_size = object.count("vocab_size", 32000);
  model.norm = "rmsnorm";
  model.norm_eps = object.number("rms_norm_eps", 1e-6);
  model.activation = activation(object, HuggingFaceLayout::kLlama, "hidden_act", "silu");
  read_rope(object, problems, model);
  model.bias = object.flag("attention_bias", false);
  if (object.flag("mlp_bias", false) != model.bias)
    object.refuse("mlp_bias", fmt::format("{} with attention_bias {} is not implemented: model.bias is of both",
                                          !model.bias, model.bias));
  model.tie_word_embeddings = object.flag("tie_word_embeddings", false);
  model.init_std = object.number("initializer_range", 0.02);
  if (const Json* layers = object.find("layer_types"); layers != nullptr) {
    for (const Json& layer : *layers)
      if (layer != "full_attention") {
        object.refuse("layer_types", fmt::format("{} is not implemented (full_attention)", shown(layer)));
        break;
      }
  }
  return model;
}

// Fields that are not mapped.
void check_others(const Object& object, HuggingFaceLayout layout, std::vector<std::string>& notes) {
  for (const auto& [name, value] : object.json().items()) {
    const FieldRow* row = config::find_field(layout, name);
    if (row == nullptr) {
      if (!value.is_null()) object.refuse(name, fmt::format("{} is not known", shown(value)));
    } else if (row->use == FieldUse::kFixed) {
      const std::string text = value.dump();
      if (std::ranges::find(row->values, text) == row->values.end())
        object.refuse(name, fmt::format("{} is not implemented ({})", shown(value), row->values.front()));
    } else if (row->use == FieldUse::kDropout) {
      const double chance = object.number(name.c_str(), 0.0);
      if (chance > 0) notes.push_back(fmt::format("{} {}: Tessera trains without dropout", name, chance));
    }
  }
}

// The rules of a job's model section.
void check_model(const ModelConfig& model, std::vector<std::string>& problems) {
  JobConfig job;
  job.run.steps = 1;
  job.data.train = {{"tokens.bin", 1.0}};
  job.batch = {1, 1};
  job.model = model;
  for (const ConfigProblem& problem : check_config_text(to_yaml(job), "").problems)
    problems.push_back(fmt::format("{}: {}", problem.key, problem.message));
}

[[noreturn]] void refuse(const std::string& path, std::vector<std::string> problems) {
  const std::size_t num_left_out = problems.size() - std::min(problems.size(), kMaxProblems);
  problems.resize(problems.size() - num_left_out);
  throw CheckpointError(fmt::format("{}: {}{}", path, fmt::join(problems, "; "),
                                    num_left_out > 0 ? fmt::format("; and {} more", num_left_out) : ""),
                        "docs/huggingface.md lists what is read");
}

}  // namespace

std::string_view name_of(HuggingFaceLayout layout) {
  return layout == HuggingFaceLayout::kGpt2 ? "gpt2" : "llama";
}

HuggingFaceModel read_huggingface_config(const std::string& text, const std::string& path) {
  const Json json = parse_object(text, path);
  std::vector<std::string> problems;
  const Object object(json, "", problems);
  HuggingFaceModel read;
  const std::string type = object.text("model_type", "");
  if (type != "gpt2" && type != "llama")
    refuse(path, {type.empty() ? "model_type: missing (gpt2, llama)"
                               : fmt::format("model_type: {} is not implemented (gpt2, llama)", type)});
  read.layout = type == "gpt2" ? HuggingFaceLayout::kGpt2 : HuggingFaceLayout::kLlama;
  read.model = read.layout == HuggingFaceLayout::kGpt2 ? read_gpt2(object) : read_llama(object, problems);
  read.tokens = special_tokens(object);
  check_others(object, read.layout, read.notes);
  if (problems.empty()) check_model(read.model, problems);
  if (!problems.empty()) refuse(path, std::move(problems));
  return read;
}

SpecialTokens read_special_tokens(const std::string& text, const std::string& path) {
  const Json json = parse_object(text, path);
  std::vector<std::string> problems;
  const SpecialTokens tokens = special_tokens(Object(json, "", problems));
  if (!problems.empty()) refuse(path, std::move(problems));
  return tokens;
}

}  // namespace tessera
