#include "models/gpt_block.h"

#include "runtime/ops/matmul.h"

namespace tessera {
namespace {

void turn(const GptContext& c, const DeviceTensor& x, std::int64_t heads, bool inverse) {
  const GptShape& s = c.shape;
  if (s.rope)
    ops::rope(c.stream, {.batch = s.batch,
                         .seq = s.seq,
                         .heads = heads,
                         .head_dim = s.head_dim,
                         .x = x,
                         .cos_table = c.rope_cos,
                         .sin_table = c.rope_sin,
                         .inverse = inverse});
}

void linear(const GptContext& c, const LinearViews& p, ConstTensorView x, TensorView y) {
  ops::linear_forward(c.stream, {.x = x, .w = p.weight, .bias = p.bias, .y = y});
}

void linear_gradients(const GptContext& c, const LinearViews& gradients, ConstTensorView dy, ConstTensorView x,
                      bool accumulate) {
  ops::linear_backward_weight(
      c.stream, {.dy = dy, .x = x, .dw = gradients.weight, .dbias = gradients.bias, .accumulate = accumulate});
}

void linear_input_gradient(const GptContext& c, const LinearViews& p, ConstTensorView dy, TensorView dx,
                           bool accumulate = false) {
  ops::linear_backward_input(c.stream, {.dy = dy, .w = p.weight, .dx = dx, .accumulate = accumulate});
}

// y [T, H] of a norm whose statistics were kept.
DeviceTensor norm_again(const GptContext& c, const NormViews& p, ConstTensorView x, ConstTensorView mean,
                        ConstTensorView rstd) {
  DeviceTensor y = c.scratch({c.shape.tokens(), c.shape.hidden});
  ops::norm_recompute(
      c.stream,
      {.kind = c.shape.norm, .residual = x, .gain = p.gain, .bias = p.bias, .mean = mean, .rstd = rstd, .y = y});
  return y;
}

// Adds the gradient that passes through a norm to the residual stream's.
void norm_into_stream(const GptContext& c, const NormViews& p, const NormViews& gradients, ConstTensorView dy,
                      ConstTensorView x, ConstTensorView mean, ConstTensorView rstd, TensorView stream_gradient,
                      bool accumulate) {
  ops::norm_backward(c.stream, {.kind = c.shape.norm,
                                .dy = dy,
                                .residual = x,
                                .gain = p.gain,
                                .mean = mean,
                                .rstd = rstd,
                                .dx = stream_gradient,
                                .dgain = gradients.gain,
                                .dbias = gradients.bias,
                                .accumulate_input = true,
                                .accumulate_parameters = accumulate});
}

// From x to r. Returns h2, the second norm's output; leaves r in a.residual and what backward needs in the rest.
DeviceTensor attention_part_forward(const GptContext& c, const BlockViews& p, BlockActivations& a, bool keep) {
  const GptShape& s = c.shape;
  const std::int64_t t = s.tokens();
  const auto kept = [&](Shape shape) { return keep ? c.activation(shape) : c.scratch(shape); };

  if (s.layer_norm()) a.attention_mean = kept({t});
  a.attention_rstd = kept({t});
  DeviceTensor h1 = c.scratch({t, s.hidden});
  ops::norm_forward(c.stream, {.kind = s.norm,
                               .residual = a.input,
                               .gain = p.attention_norm.gain,
                               .bias = p.attention_norm.bias,
                               .y = h1,
                               .mean = a.attention_mean,
                               .rstd = a.attention_rstd,
                               .eps = s.norm_eps});
  a.query = kept({t, s.query_size()});
  linear(c, p.query, h1, a.query);
  a.key = kept({t, s.kv_size()});
  linear(c, p.key, h1, a.key);
  a.value = kept({t, s.kv_size()});
  linear(c, p.value, h1, a.value);
  h1.reset();
  turn(c, a.query, s.query_heads, false);
  turn(c, a.key, s.kv_heads, false);

  a.attention = kept({t, s.query_size()});
  if (keep) a.lse = kept({s.batch, s.query_heads, s.seq});
  ops::attention_forward(
      c.stream, {.shape = s.attention(), .q = a.query, .k = a.key, .v = a.value, .o = a.attention, .lse = a.lse});
  if (!keep) {
    a.query.reset();
    a.key.reset();
    a.value.reset();
  }
  DeviceTensor projected = c.scratch({t, s.hidden});
  linear(c, p.output, a.attention, projected);
  if (!keep) a.attention.reset();

  // Without a backward r takes x's place: residual_out may alias residual.
  if (keep)
    a.residual = kept({t, s.hidden});
  else
    a.residual = std::move(a.input);
  if (s.layer_norm()) a.feed_forward_mean = kept({t});
  a.feed_forward_rstd = kept({t});
  DeviceTensor h2 = c.scratch({t, s.hidden});
  ops::norm_forward(c.stream, {.kind = s.norm,
                               .residual = keep ? a.input : a.residual,
                               .delta = projected,
                               .gain = p.feed_forward_norm.gain,
                               .bias = p.feed_forward_norm.bias,
                               .residual_out = a.residual,
                               .y = h2,
                               .mean = a.feed_forward_mean,
                               .rstd = a.feed_forward_rstd,
                               .eps = s.norm_eps});
  return h2;
}

// gradient: of r on entry, of x on return.
void attention_part_backward(const GptContext& c, const BlockViews& p, const BlockViews& g, BlockActivations& a,
                             TensorView gradient, bool accumulate) {
  const GptShape& s = c.shape;
  const std::int64_t t = s.tokens();

  linear_gradients(c, g.output, gradient, a.attention, accumulate);
  DeviceTensor dattention = c.scratch({t, s.query_size()});
  linear_input_gradient(c, p.output, gradient, dattention);
  DeviceTensor dquery = c.scratch({t, s.query_size()});
  DeviceTensor dkey = c.scratch({t, s.kv_size()});
  DeviceTensor dvalue = c.scratch({t, s.kv_size()});
  ops::attention_backward(c.stream, {.shape = s.attention(),
                                     .q = a.query,
                                     .k = a.key,
                                     .v = a.value,
                                     .o = a.attention,
                                     .lse = a.lse,
                                     .dout = dattention,
                                     .dq = dquery,
                                     .dk = dkey,
                                     .dv = dvalue});
  dattention.reset();
  a.query.reset();
  a.key.reset();
  a.value.reset();
  a.attention.reset();
  a.lse.reset();
  turn(c, dquery, s.query_heads, true);
  turn(c, dkey, s.kv_heads, true);

  DeviceTensor h1 = norm_again(c, p.attention_norm, a.input, a.attention_mean, a.attention_rstd);
  linear_gradients(c, g.query, dquery, h1, accumulate);
  linear_gradients(c, g.key, dkey, h1, accumulate);
  linear_gradients(c, g.value, dvalue, h1, accumulate);
  h1.reset();
  DeviceTensor dh1 = c.scratch({t, s.hidden});
  linear_input_gradient(c, p.query, dquery, dh1);
  dquery.reset();
  linear_input_gradient(c, p.key, dkey, dh1, true);
  dkey.reset();
  linear_input_gradient(c, p.value, dvalue, dh1, true);
  dvalue.reset();
  norm_into_stream(c, p.attention_norm, g.attention_norm, dh1, a.input, a.attention_mean, a.attention_rstd, gradient,
                   accumulate);
}

// From h2 to y = r + down(activation).
DeviceTensor feed_forward_part_forward(const GptContext& c, const BlockViews& p, DeviceTensor h2, BlockActivations& a,
                                       bool keep) {
  const GptShape& s = c.shape;
  const std::int64_t t = s.tokens();
  const auto kept = [&](Shape shape) { return keep ? c.activation(shape) : c.scratch(shape); };
  if (s.gated()) {
    a.gate = kept({t, s.intermediate});
    linear(c, p.gate, h2, a.gate);
  }
  a.up = kept({t, s.intermediate});
  linear(c, p.up, h2, a.up);
  h2.reset();

  const DeviceTensor& x = s.gated() ? a.gate : a.up;
  const ConstTensorView factor = s.gated() ? ConstTensorView(a.up) : ConstTensorView();
  DeviceTensor activated;  // without a backward the result takes its input's place
  if (keep) activated = c.scratch({t, s.intermediate});
  const TensorView activation = keep ? activated.view() : x.view();
  ops::activation_forward(c.stream, {.kind = s.activation, .x = x, .up = factor, .y = activation});
  if (!keep && s.gated()) a.up.reset();

  DeviceTensor y = c.activation({t, s.hidden});
  linear(c, p.down, activation, y);
  ops::add(c.stream, {.a = a.residual, .b = y, .y = y});
  return y;
}

// gradient: of y on entry, of r on return.
void feed_forward_part_backward(const GptContext& c, const BlockViews& p, const BlockViews& g, BlockActivations& a,
                                TensorView gradient, bool accumulate) {
  const GptShape& s = c.shape;
  const std::int64_t t = s.tokens();
  const DeviceTensor& x = s.gated() ? a.gate : a.up;
  const ConstTensorView factor = s.gated() ? ConstTensorView(a.up) : ConstTensorView();

  DeviceTensor activated = c.scratch({t, s.intermediate});
  ops::activation_forward(c.stream, {.kind = s.activation, .x = x, .up = factor, .y = activated});
  linear_gradients(c, g.down, gradient, activated, accumulate);
  activated.reset();

  // The gradients of the activation's inputs take the inputs' place: nothing reads those again.
  DeviceTensor dactivated = c.scratch({t, s.intermediate});
  linear_input_gradient(c, p.down, gradient, dactivated);
  ops::activation_backward(c.stream, {.kind = s.activation,
                                      .dy = dactivated,
                                      .x = x,
                                      .up = factor,
                                      .dx = x,
                                      .dup = s.gated() ? a.up.view() : TensorView()});
  dactivated.reset();

  DeviceTensor h2 = norm_again(c, p.feed_forward_norm, a.residual, a.feed_forward_mean, a.feed_forward_rstd);
  if (s.gated()) linear_gradients(c, g.gate, a.gate, h2, accumulate);
  linear_gradients(c, g.up, a.up, h2, accumulate);
  h2.reset();
  DeviceTensor dh2 = c.scratch({t, s.hidden});
  if (s.gated()) {
    linear_input_gradient(c, p.gate, a.gate, dh2);
    a.gate.reset();
  }
  linear_input_gradient(c, p.up, a.up, dh2, s.gated());
  a.up.reset();
  norm_into_stream(c, p.feed_forward_norm, g.feed_forward_norm, dh2, a.residual, a.feed_forward_mean,
                   a.feed_forward_rstd, gradient, accumulate);
  a.residual.reset();
  a.feed_forward_mean.reset();
  a.feed_forward_rstd.reset();
}

}  // namespace

DeviceTensor block_forward(const GptContext& context, const BlockViews& parameters, DeviceTensor input,
                           BlockActivations* saved) {
  const bool keep = saved != nullptr;
  BlockActivations passing;
  BlockActivations& a = keep ? *saved : passing;
  a.input = std::move(input);
  DeviceTensor h2 = attention_part_forward(context, parameters, a, keep);
  return feed_forward_part_forward(context, parameters, std::move(h2), a, keep);
}

void block_backward(const GptContext& context, const BlockViews& parameters, const BlockViews& gradients,
                    BlockActivations& saved, TensorView gradient, bool accumulate) {
  feed_forward_part_backward(context, parameters, gradients, saved, gradient, accumulate);
  attention_part_backward(context, parameters, gradients, saved, gradient, accumulate);
  saved = BlockActivations();
}

}  // namespace tessera
