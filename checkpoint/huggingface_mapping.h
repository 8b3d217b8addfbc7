// Which of our parameters is which tensor of a Hugging Face model: tables of names, and what they amount to for the parameters of a model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "runtime/config/huggingface_config.h"
#include "runtime/program/parameter_spec.h"

namespace tessera {

// One of our parameters among their tensors.
struct HuggingFacePlace {
  std::string parameter;        // ours
  std::string tensor;           // theirs, as bare_name() says it
  Extents shape;                // ours
  bool transposed = false;      // theirs is [in, out] (GPT-2's Conv1D), ours [out, in]
  int part = 0, num_parts = 1;  // theirs holds so many of ours side by side along its outputs; this is one of them

  // Of the whole of their tensor.
  Extents tensor_shape() const;
  friend bool operator==(const HuggingFacePlace&, const HuggingFacePlace&) = default;
};

// In the order of the parameters. InternalError where the layout has no place for one: the model was expressible.
std::vector<HuggingFacePlace> huggingface_places(HuggingFaceLayout layout,
                                                 const std::vector<ParameterSpec>& parameters);

inline constexpr std::string_view kHuggingFaceHead = "lm_head.weight";
// A tensor's name without what the model inside the language model is called: files of either have the same tensors.
//   "transformer.h.0.ln_1.weight" → "h.0.ln_1.weight";  "model.norm.weight" → "norm.weight"
std::string bare_name(HuggingFaceLayout layout, const std::string& tensor);
// The name that a language model's file has for it.
std::string full_name(HuggingFaceLayout layout, const std::string& bare);
// Of buffers that older files hold: masks and tables that follow from the config.
bool is_ignorable(HuggingFaceLayout layout, std::string_view bare);

}  // namespace tessera
