// Final norm, head and loss; the one segment whose forward and backward are one call, so that logits exist for a few
// rows at a time.
#pragma once

#include <span>

#include "models/gpt.h"
#include "models/gpt_context.h"
#include "models/gpt_parameters.h"

namespace tessera {

// Takes x [T, H], the last block's output, over and frees it; leaves its gradient [T, H] (kActivations) in `gradient`.
// Gradients of parameters are assigned, or added where accumulate; all are scaled by gradient_scale.
LossSum head_loss_and_gradient(const GptContext& context, const MicroBatch& batch, const HeadViews& parameters,
                               const HeadViews& gradients, bool accumulate, float gradient_scale, DeviceTensor input,
                               DeviceTensor& gradient);

// Losses without gradients; frees x. kTraining: bit for bit those of head_loss_and_gradient.
LossSum head_loss_only(const GptContext& context, const MicroBatch& batch, const HeadViews& parameters,
                       DeviceTensor input, LossKind kind);

// out [V]: logits of one row of x.
void head_logits(const GptContext& context, const HeadViews& parameters, ConstTensorView input, std::int64_t row,
                 std::span<float> out);

}  // namespace tessera
