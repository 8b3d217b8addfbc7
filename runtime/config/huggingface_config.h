// config.json of a Hugging Face model ↔ the model section of a job (docs/huggingface.md). Two layouts: GPT-2 and Llama.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job_config.h"

namespace tessera {

enum class HuggingFaceLayout : std::uint8_t { kGpt2, kLlama };
std::string_view name_of(HuggingFaceLayout layout);  // as config.json's model_type says it: "gpt2", "llama"

// Ids of tokens that config.json and generation_config.json name; some models have several ends. Empty: not said.
struct SpecialTokens {
  std::vector<std::int64_t> bos, eos, pad;
  bool none() const { return bos.empty() && eos.empty() && pad.empty(); }
  friend bool operator==(const SpecialTokens&, const SpecialTokens&) = default;
};

struct HuggingFaceModel {
  HuggingFaceLayout layout = HuggingFaceLayout::kGpt2;
  ModelConfig model;  // norm, positions, kv heads and feed-forward size are set, whatever the defaults
  SpecialTokens tokens;
  std::vector<std::string> notes;  // to be said aloud: what the file asks for in training alone, and is not done
};

inline constexpr std::size_t kMaxHuggingFaceConfigBytes = std::size_t{1} << 20;

// Absent fields are what transformers takes them for. CheckpointError that names path and, all at once, every field that is missing, of another
// type, or has a value that is not implemented, and every field that is not known: it might change what the model computes.
HuggingFaceModel read_huggingface_config(const std::string& text, const std::string& path);

// The config.json that transformers builds the same model from. CheckpointError naming every field of the model that the nearest layout cannot
// express.
struct HuggingFaceConfigFile {
  HuggingFaceLayout layout = HuggingFaceLayout::kGpt2;
  std::string text;
};
HuggingFaceConfigFile write_huggingface_config(const ModelConfig& model, const SpecialTokens& tokens);

// generation_config.json: other fields are passed over. CheckpointError for what is no JSON object.
SpecialTokens read_special_tokens(const std::string& text, const std::string& path);
std::string write_special_tokens(const SpecialTokens& tokens);

}  // namespace tessera
