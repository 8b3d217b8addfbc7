#include "models/gpt_head.h"

#include <algorithm>
#include <limits>

#include "runtime/ops/matmul.h"

namespace tessera {
namespace {

struct FinalNorm {
  DeviceTensor y, mean, rstd;  // [rows, H], [rows]
};

FinalNorm final_norm(const GptContext& c, const HeadViews& p, ConstTensorView x) {
  const std::int64_t rows = x.shape[0];
  FinalNorm n;
  if (c.shape.layer_norm()) n.mean = c.scratch({rows});
  n.rstd = c.scratch({rows});
  n.y = c.scratch({rows, c.shape.hidden});
  ops::norm_forward(c.stream, {.kind = c.shape.norm,
                               .residual = x,
                               .gain = p.final_norm.gain,
                               .bias = p.final_norm.bias,
                               .y = n.y,
                               .mean = n.mean,
                               .rstd = n.rstd,
                               .eps = c.shape.norm_eps});
  return n;
}

LossSum sum_losses(const GptContext& c, ConstTensorView targets, ConstTensorView losses) {
  c.stream.synchronize();
  const auto* target = targets.as<std::int32_t>();
  const auto* loss = losses.as<float>();
  LossSum result;
  result.max_loss = -std::numeric_limits<float>::infinity();
  for (std::int64_t t = 0; t < losses.num_elements(); ++t) {
    if (target[t] == c.loss.ignore_index) continue;
    result.sum.add(loss + t, 1);
    // A NaN must show in the maximum too, and std::max would drop it.
    result.max_loss = loss[t] > result.max_loss || loss[t] != loss[t] ? loss[t] : result.max_loss;
    ++result.num_targets;
  }
  return result;
}

}  // namespace

LossSum head_loss_and_gradient(const GptContext& c, const MicroBatch& batch, const HeadViews& p, const HeadViews& g,
                               bool accumulate, float gradient_scale, DeviceTensor input, DeviceTensor& gradient) {
  const Shape rows{c.shape.tokens(), c.shape.hidden};
  FinalNorm norm = final_norm(c, p, input);
  DeviceTensor losses = c.scratch({c.shape.tokens()});
  DeviceTensor dy = c.scratch(rows);
  ops::head_loss(c.stream, {.x = norm.y,
                            .w = p.weight,
                            .targets = batch.targets,
                            .losses = losses,
                            .dx = dy,
                            .dw = g.weight,
                            .options = c.loss,
                            .gradient_scale = gradient_scale,
                            .with_gradient = true,
                            .accumulate_weight = accumulate});
  norm.y.reset();
  gradient = c.activation(rows);
  ops::norm_backward(c.stream, {.kind = c.shape.norm,
                                .dy = dy,
                                .residual = input,
                                .gain = p.final_norm.gain,
                                .mean = norm.mean,
                                .rstd = norm.rstd,
                                .dx = gradient,
                                .dgain = g.final_norm.gain,
                                .dbias = g.final_norm.bias,
                                .accumulate_input = false,
                                .accumulate_parameters = accumulate});
  return sum_losses(c, batch.targets, losses);
}

LossSum head_loss_only(const GptContext& c, const MicroBatch& batch, const HeadViews& p, DeviceTensor input,
                       LossKind kind) {
  const FinalNorm norm = final_norm(c, p, input);
  const DeviceTensor losses = c.scratch({c.shape.tokens()});
  ops::CrossEntropyOptions plain;
  plain.ignore_index = c.loss.ignore_index;
  ops::head_loss(c.stream, {.x = norm.y,
                            .w = p.weight,
                            .targets = batch.targets,
                            .losses = losses,
                            .options = kind == LossKind::kTraining ? c.loss : plain,
                            .with_gradient = false});
  return sum_losses(c, batch.targets, losses);
}

void head_logits(const GptContext& c, const HeadViews& p, ConstTensorView input, std::int64_t row,
                 std::span<float> out) {
  require(row >= 0 && row < c.shape.tokens(), "logits of a row outside the micro-batch");
  require(static_cast<std::int64_t>(out.size()) == c.shape.vocabulary, "logits into another size than the vocabulary");
  const ConstTensorView x(input.as<float>() + row * c.shape.hidden, {1, c.shape.hidden});
  const FinalNorm norm = final_norm(c, p, x);
  const DeviceTensor logits = c.scratch({1, c.shape.vocabulary});
  ops::linear_forward(c.stream, {.x = norm.y, .w = p.weight, .y = logits});
  c.stream.synchronize();
  std::copy_n(logits.view().as<float>(), out.size(), out.data());
}

}  // namespace tessera
