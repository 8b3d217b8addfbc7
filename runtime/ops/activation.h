// Activations of the feed-forward layer, elementwise over n = num_elements(x).
#pragma once

#include "runtime/device/stream.h"
#include "runtime/device/tensor_view.h"

namespace tessera::ops {

// gelu: x/2 (1 + erf(x/√2)); gelu_tanh: x/2 (1 + tanh(√(2/π)(x + 0.044715 x³))); silu: x / (1 + e^-x);
// swiglu: silu(gate) * up; geglu: gelu(gate) * up (exact gelu).
enum class ActivationKind : std::uint8_t { kGelu, kGeluTanh, kRelu, kSilu, kSwiGlu, kGeGlu };
constexpr bool is_gated(ActivationKind kind) {
  return kind == ActivationKind::kSwiGlu || kind == ActivationKind::kGeGlu;
}

// y = f(x), or y = f(x) * up for the gated kinds (x is the gate). y may alias x.
struct ActivationForward {
  ActivationKind kind;
  ConstTensorView x, up;
  TensorView y;
};
void activation_forward(StreamView stream, const ActivationForward& args);

// dx = dy f'(x) (· up); dup = dy f(x). Assigns. dx may alias dy or x; dup may alias up.
struct ActivationBackward {
  ActivationKind kind;
  ConstTensorView dy, x, up;
  TensorView dx, dup;
};
void activation_backward(StreamView stream, const ActivationBackward& args);

// y = a + b elementwise (y may alias either); y *= scale; both fp32, any dense shape.
struct Add {
  ConstTensorView a, b;
  TensorView y;
};
void add(StreamView stream, const Add& args);

}  // namespace tessera::ops
