// Softmax cross-entropy. Legend: R rows, V vocabulary.
#pragma once

#include "runtime/device/stream.h"
#include "runtime/device/tensor_view.h"

namespace tessera::ops {

struct CrossEntropyOptions {
  std::int32_t ignore_index = -100;
  float label_smoothing = 0.0F;
  float z_loss = 0.0F;
};

// losses[r] = lse(z) - ((1-s) z_y + s mean(z)) + z_loss lse(z)²; 0 for ignored rows. In place, where with_gradient:
// logits[r, v] becomes gradient_scale · d losses[r] / d z_v (0 for ignored rows). targets: i32 [R]; losses: fp32 [R].
// max is subtracted; the sum of exponentials runs over 16 lanes in column order, then a fixed tree.
struct CrossEntropy {
  TensorView logits;  // [R, V]
  ConstTensorView targets;
  TensorView losses;
  CrossEntropyOptions options;
  float gradient_scale = 1.0F;
  bool with_gradient = true;
};
void cross_entropy(StreamView stream, const CrossEntropy& args);

// The language-model head and its loss, in chunks of kHeadChunkRows rows so that neither all logits nor their gradients
// exist: logits = x[T, H] · w[V, H]ᵀ (+ no bias), losses[T] as above; where with_gradient also dx[T, H] = dlogits · w
// (assigns) and dw[V, H] = dlogitsᵀ · x (the first chunk assigns unless accumulate_weight, later ones add).
struct HeadLoss {
  ConstTensorView x, w, targets;
  TensorView losses, dx, dw;
  CrossEntropyOptions options;
  float gradient_scale = 1.0F;
  bool with_gradient = true;
  bool accumulate_weight = false;
};
inline constexpr std::int64_t kHeadChunkRows = 512;
void head_loss(StreamView stream, const HeadLoss& args);
// Bytes of logits scratch head_loss takes from the allocator (kWorkspace).
std::int64_t head_loss_workspace_bytes(std::int64_t rows, std::int64_t vocabulary);

}  // namespace tessera::ops
