#include "runtime/ops/kernel_digest.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/matmul.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/optimizer_ops.h"

namespace tessera::ops {
namespace {

// Corners of products: enough for a whole and a partial register block, and for several chunks of the inner dimension.
constexpr std::int64_t kOuter = 50;
constexpr std::int64_t kInner = 2048;
// Other operators: whole lanes and a tail.
constexpr std::int64_t kRows = 5;
constexpr std::int64_t kFeatures = 83;

// Counter-generated values in [-1, 1), all bits of the mantissa in use.
std::vector<float> make_inputs(std::uint64_t family, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = mix64((family << 32) + i) >> 40;
    values[i] = static_cast<float>(static_cast<std::int64_t>(bits) - (1 << 23)) * 0x1p-23F;
  }
  return values;
}

class Digest {
 public:
  explicit Digest(StreamView stream) : stream_(stream) {}

  void products(std::span<const ProductShape> shapes);
  void rows();
  void attention();
  void updates();
  std::uint64_t value() const { return hash_; }

 private:
  // A fresh output, filled with something that an assigning operator overwrites and an adding one uses.
  TensorView output(Shape shape) {
    output_.assign(static_cast<std::size_t>(shape.num_elements()), 0.5F);
    return {output_.data(), shape};
  }
  void add(const void* data, std::size_t bytes) { hash_ = hash_bytes(data, bytes, hash_); }
  void add_output() {
    stream_.synchronize();
    add(output_.data(), output_.size() * sizeof(float));
  }

  StreamView stream_;
  std::uint64_t hash_ = 0;
  std::vector<float> output_;
};

void Digest::products(std::span<const ProductShape> shapes) {
  const std::vector<float> left = make_inputs(1, kOuter * kInner);
  const std::vector<float> right = make_inputs(2, kOuter * kInner);
  const auto outer = [](std::int64_t extent) { return std::min(extent, kOuter); };
  const auto inner = [](std::int64_t extent) { return std::min(extent, kInner); };
  for (const auto& [tokens, inputs, outputs] : shapes) {
    linear_forward(stream_, {.x = {left.data(), {outer(tokens), inner(inputs)}},
                             .w = {right.data(), {outer(outputs), inner(inputs)}},
                             .bias = {left.data(), {outer(outputs)}},
                             .y = output({outer(tokens), outer(outputs)})});
    add_output();
    linear_backward_input(stream_, {.dy = {left.data(), {outer(tokens), inner(outputs)}},
                                    .w = {right.data(), {inner(outputs), outer(inputs)}},
                                    .dx = output({outer(tokens), outer(inputs)}),
                                    .accumulate = true});
    add_output();
    std::array<float, kOuter> bias{};
    linear_backward_weight(stream_, {.dy = {left.data(), {inner(tokens), outer(outputs)}},
                                     .x = {right.data(), {inner(tokens), outer(inputs)}},
                                     .dw = output({outer(outputs), outer(inputs)}),
                                     .dbias = {bias.data(), {outer(outputs)}}});
    add_output();
    add(bias.data(), sizeof(bias));
  }
}

void Digest::rows() {
  const std::int64_t n = kRows * kFeatures;
  const std::vector<float> x = make_inputs(3, n);
  const std::vector<float> y = make_inputs(4, n);
  const std::vector<float> gain = make_inputs(5, kFeatures);
  const Shape shape{kRows, kFeatures};
  std::array<float, kRows> mean{};
  std::array<float, kRows> rstd{};
  std::array<float, 2 * kFeatures> gradients{};
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    norm_forward(stream_, {.kind = kind,
                           .residual = {x.data(), shape},
                           .gain = {gain.data(), {kFeatures}},
                           .y = output(shape),
                           .mean = {mean.data(), {kRows}},
                           .rstd = {rstd.data(), {kRows}}});
    add_output();
    norm_backward(stream_, {.kind = kind,
                            .dy = {y.data(), shape},
                            .residual = {x.data(), shape},
                            .gain = {gain.data(), {kFeatures}},
                            .mean = {mean.data(), {kRows}},
                            .rstd = {rstd.data(), {kRows}},
                            .dx = output(shape),
                            .dgain = {gradients.data(), {kFeatures}},
                            .dbias = {gradients.data() + kFeatures, {kFeatures}}});
    add_output();
    add(gradients.data(), sizeof(gradients));
  }
  for (const ActivationKind kind : {ActivationKind::kGelu, ActivationKind::kGeluTanh, ActivationKind::kRelu,
                                    ActivationKind::kSilu, ActivationKind::kSwiGlu, ActivationKind::kGeGlu}) {
    activation_forward(stream_, {.kind = kind, .x = {x.data(), {n}}, .up = {y.data(), {n}}, .y = output({n})});
    add_output();
    const TensorView both = output({2, n});
    activation_backward(stream_, {.kind = kind,
                                  .dy = {y.data(), {n}},
                                  .x = {x.data(), {n}},
                                  .up = {y.data(), {n}},
                                  .dx = {both.data, {n}},
                                  .dup = {both.as<float>() + n, {n}}});
    add_output();
  }
  const TensorView logits = output(shape);
  std::copy(x.begin(), x.end(), logits.as<float>());
  const std::array<std::int32_t, kRows> targets = {0, 1, 81, 82, 40};
  std::array<float, kRows> losses{};
  cross_entropy(stream_, {.logits = logits,
                          .targets = {targets.data(), {kRows}, DType::kInt32},
                          .losses = {losses.data(), {kRows}},
                          .options = {.label_smoothing = 0.1F, .z_loss = 1e-3F}});
  add_output();
  add(losses.data(), sizeof(losses));
}

void Digest::attention() {
  const AttentionShape shape{.batch = 1, .seq = 67, .query_heads = 2, .kv_heads = 1, .head_dim = 24};
  const Shape query{67, 48};
  const Shape key{67, 24};
  const std::vector<float> q = make_inputs(6, query.num_elements());
  const std::vector<float> k = make_inputs(7, key.num_elements());
  const std::vector<float> v = make_inputs(8, key.num_elements());
  const std::vector<float> dout = make_inputs(9, query.num_elements());
  std::array<float, 134> lse{};
  attention_forward(stream_, {.shape = shape,
                              .q = {q.data(), query},
                              .k = {k.data(), key},
                              .v = {v.data(), key},
                              .o = output(query),
                              .lse = {lse.data(), {134}}});
  add_output();
  add(lse.data(), sizeof(lse));
  const std::vector<float> o = output_;
  const TensorView gradients = output({67 * 96});
  float* dq = gradients.as<float>();
  attention_backward(stream_, {.shape = shape,
                               .q = {q.data(), query},
                               .k = {k.data(), key},
                               .v = {v.data(), key},
                               .o = {o.data(), query},
                               .lse = {lse.data(), {134}},
                               .dout = {dout.data(), query},
                               .dq = {dq, query},
                               .dk = {dq + query.num_elements(), key},
                               .dv = {dq + query.num_elements() + key.num_elements(), key}});
  add_output();
  std::array<float, 67 * 12> cosines{};
  std::array<float, 67 * 12> sines{};
  make_rope_tables(67, 24, {.theta = 10000.0}, cosines.data(), sines.data());
  const TensorView x = output(query);
  rope(stream_, {.batch = 1,
                 .seq = 67,
                 .heads = 2,
                 .head_dim = 24,
                 .x = x,
                 .cos_table = {cosines.data(), {67, 12}},
                 .sin_table = {sines.data(), {67, 12}}});
  add_output();
}

void Digest::updates() {
  constexpr std::size_t kN = 1003;
  std::vector<float> state = make_inputs(10, 3 * kN);
  for (std::size_t i = 2 * kN; i < 3 * kN; ++i) state[i] = state[i] * state[i];  // second moments are not negative
  const std::vector<float> gradient = make_inputs(11, kN);
  adamw(stream_, {.parameter = {state.data(), kN},
                  .m = {state.data() + kN, kN},
                  .v = {state.data() + 2 * kN, kN},
                  .gradient = gradient,
                  .gradient_scale = 0.7F,
                  .step_size = 1e-3F,
                  .denominator_scale = 1.1F,
                  .decay = 1e-4F});
  stream_.synchronize();
  add(state.data(), state.size() * sizeof(float));
  const std::array<const float*, 3> sources = {state.data(), state.data() + kN, state.data() + 2 * kN};
  output({static_cast<std::int64_t>(kN)});
  tree_sum(std::span<float>(output_), sources);
  add_output();
}

}  // namespace

std::uint64_t kernel_digest(StreamView stream, std::span<const ProductShape> products) {
  Digest digest(stream);
  digest.products(products);
  digest.rows();
  digest.attention();
  digest.updates();
  return digest.value();
}

}  // namespace tessera::ops
