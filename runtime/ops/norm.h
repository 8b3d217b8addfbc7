// LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019) over the last axis, with the residual addition
// fused in. Legend: T rows, H features. Statistics are kept per row: mean[T] (layernorm only), rstd[T].
#pragma once

#include "runtime/device/stream.h"
#include "runtime/device/tensor_view.h"

namespace tessera::ops {

enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm };

// residual_out[T, H] = residual[T, H] + delta[T, H]  (delta may be empty: residual_out, if given, is then a copy; may
// alias residual) y[T, H] = (r - mean) * rstd * gain + bias          (rmsnorm: r * rstd * gain; bias may be empty) rstd
// = 1 / sqrt(var + eps), var biased (rmsnorm: mean of squares).
struct NormForward {
  NormKind kind = NormKind::kLayerNorm;
  ConstTensorView residual, delta, gain, bias;
  TensorView residual_out;  // may be empty where delta is empty
  TensorView y, mean, rstd;
  float eps = 1e-5F;
};
void norm_forward(StreamView stream, const NormForward& args);

// y again from saved statistics (to avoid storing it): same bits as norm_forward's y.
struct NormRecompute {
  NormKind kind = NormKind::kLayerNorm;
  ConstTensorView residual, gain, bias, mean, rstd;
  TensorView y;
};
void norm_recompute(StreamView stream, const NormRecompute& args);

// dx[T, H]: gradient through the norm. Assigns, or adds to dx (the residual stream's gradient) where accumulate_input.
// dgain[H], dbias[H]: sums over rows in constant chunks; assign, or add where accumulate_parameters. dbias may be
// empty.
struct NormBackward {
  NormKind kind = NormKind::kLayerNorm;
  ConstTensorView dy, residual, gain, mean, rstd;
  TensorView dx, dgain, dbias;
  bool accumulate_input = false;
  bool accumulate_parameters = false;
};
void norm_backward(StreamView stream, const NormBackward& args);
// Bytes of scratch norm_backward takes from the allocator (kWorkspace).
std::int64_t norm_backward_workspace_bytes(std::int64_t rows, std::int64_t features);

}  // namespace tessera::ops
