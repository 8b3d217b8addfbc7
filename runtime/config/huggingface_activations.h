// Names that transformers and Tessera have for one activation.
#pragma once

#include <array>
#include <string_view>

#include "runtime/config/huggingface_config.h"

namespace tessera::config {

struct ActivationName {
  HuggingFaceLayout layout;
  std::string_view theirs, ours;
};

// The first of several names for one of ours is the one that is written. A Llama block multiplies by a gate: its silu is our swiglu.
inline constexpr std::array kActivationNames = {
    ActivationName{HuggingFaceLayout::kGpt2, "gelu_new", "gelu_tanh"},
    ActivationName{HuggingFaceLayout::kGpt2, "gelu_pytorch_tanh", "gelu_tanh"},
    ActivationName{HuggingFaceLayout::kGpt2, "gelu_fast", "gelu_tanh"},
    ActivationName{HuggingFaceLayout::kGpt2, "gelu", "gelu"},
    ActivationName{HuggingFaceLayout::kGpt2, "gelu_python", "gelu"},
    ActivationName{HuggingFaceLayout::kGpt2, "relu", "relu"},
    ActivationName{HuggingFaceLayout::kGpt2, "silu", "silu"},
    ActivationName{HuggingFaceLayout::kGpt2, "swish", "silu"},
    ActivationName{HuggingFaceLayout::kLlama, "silu", "swiglu"},
    ActivationName{HuggingFaceLayout::kLlama, "swish", "swiglu"},
    ActivationName{HuggingFaceLayout::kLlama, "gelu", "geglu"},
    ActivationName{HuggingFaceLayout::kLlama, "gelu_python", "geglu"},
};

}  // namespace tessera::config
