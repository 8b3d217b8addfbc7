// One transformer block, forward and backward side by side.
//
//   x ─ norm ─ query, key, value ─ (rope) ─ attention ─ output ─(+ x)─ r ─ norm ─ gate, up ─ activation ─ down ─(+ r)─
//   y
//
// Kept per block are x, r, q, k, v, the attention's output and row sums, the norms' statistics and the activation's
// inputs; backward makes the norms' outputs and the activation's output again, bit for bit.
#pragma once

#include "models/gpt_context.h"
#include "models/gpt_parameters.h"

namespace tessera {

struct BlockActivations {
  DeviceTensor input;                                 // x [T, H]: the previous segment's output
  DeviceTensor attention_mean, attention_rstd;        // [T]; no mean for rmsnorm
  DeviceTensor query, key, value;                     // [T, Hq*D], [T, Hk*D], turned by rope
  DeviceTensor attention, lse;                        // [T, Hq*D], [B, Hq, S]
  DeviceTensor residual;                              // r [T, H]
  DeviceTensor feed_forward_mean, feed_forward_rstd;  // [T]
  DeviceTensor gate, up;                              // [T, I]; gate for gated kinds only
};

// y [T, H] (kActivations). Takes x over: into saved, or, where saved is null, frees it and everything else as early as
// possible. The same operators on the same shapes either way, hence the same bits.
DeviceTensor block_forward(const GptContext& context, const BlockViews& parameters, DeviceTensor input,
                           BlockActivations* saved);

// gradient [T, H]: of y on entry, of x on return. Frees saved. Gradients of parameters are assigned, or added where
// accumulate.
void block_backward(const GptContext& context, const BlockViews& parameters, const BlockViews& gradients,
                    BlockActivations& saved, TensorView gradient, bool accumulate);

}  // namespace tessera
