#include "models/gpt_memory.h"

#include <algorithm>

#include "models/device_tensor.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/matmul.h"

namespace tessera {
namespace {

// What one fp32 tensor of each kind takes.
struct Sizes {
  explicit Sizes(const GptShape& s)
      : rows(of({s.tokens()})),
        hidden(of({s.tokens(), s.hidden})),
        query(of({s.tokens(), s.query_size()})),
        kv(of({s.tokens(), s.kv_size()})),
        intermediate(of({s.tokens(), s.intermediate})),
        lse(of({s.batch, s.query_heads, s.seq})),
        statistics(s.layer_norm() ? 2 * rows : rows),
        rope_tables(s.rope ? 2 * of({s.seq, s.head_dim / 2}) : 0) {}

  static std::int64_t of(const Shape& shape) { return DeviceTensor::allocated_bytes(shape); }

  std::int64_t rows, hidden, query, kv, intermediate, lse;
  std::int64_t statistics;   // of one norm
  std::int64_t rope_tables;  // there all the time, counted in each segment's workspace
};

}  // namespace

SegmentBytes embedding_bytes(const GptShape& shape) {
  const Sizes n(shape);
  return {.saved = n.hidden, .forward_workspace = n.rope_tables, .backward_workspace = n.rope_tables};
}

// The stages of gpt_block.cpp in its order: what is alive, and what the operator called there takes for itself.
SegmentBytes block_bytes(const GptShape& shape, int num_threads) {
  const Sizes n(shape);
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    return ops::linear_workspace(shape.tokens(), in, out, shape.bias);
  };
  const ops::LinearWorkspace query = linear(shape.hidden, shape.query_size());
  const ops::LinearWorkspace key = linear(shape.hidden, shape.kv_size());
  const ops::LinearWorkspace output = linear(shape.query_size(), shape.hidden);
  const ops::LinearWorkspace up = linear(shape.hidden, shape.intermediate);
  const ops::LinearWorkspace down = linear(shape.intermediate, shape.hidden);
  const std::int64_t norm = ops::norm_backward_workspace_bytes(shape.tokens(), shape.hidden);
  const auto attention = [&](bool backward) {
    return ops::attention_workspace_bytes(shape.attention(), num_threads, backward);
  };

  SegmentBytes bytes;
  const std::int64_t inputs = (shape.gated() ? 2 : 1) * n.intermediate;
  bytes.saved = 2 * n.statistics + 2 * n.query + 2 * n.kv + n.lse + n.hidden + inputs + n.hidden;
  bytes.forward_workspace = std::max({
      n.hidden + std::max(query.forward, key.forward),  // h1
      attention(false),
      n.hidden + output.forward,      // projected
      2 * n.hidden,                   // projected, h2
      n.hidden + up.forward,          // h2
      n.intermediate + down.forward,  // activated
  });
  bytes.backward_workspace = std::max({
      n.intermediate + down.backward_weight,  // activated
      n.intermediate + down.backward_input,   // its gradient
      n.hidden + up.backward_weight,          // h2
      n.hidden + up.backward_input,           // its gradient
      n.hidden + norm,
      output.backward_weight,
      n.query + output.backward_input,           // gradient of the attention's output
      2 * n.query + 2 * n.kv + attention(true),  // with those of q, k, v
      n.query + 2 * n.kv + n.hidden + std::max(query.backward_weight, key.backward_weight),  // h1
      n.query + 2 * n.kv + n.hidden + query.backward_input,                                  // its gradient
      2 * n.kv + n.hidden + key.backward_input,
  });
  bytes.forward_workspace += n.rope_tables;
  bytes.backward_workspace += n.rope_tables;
  return bytes;
}

SegmentBytes head_bytes(const GptShape& shape) {
  const Sizes n(shape);
  // ops::head_loss holds the logits of a chunk of rows while a product runs; the last chunk may be smaller.
  const std::int64_t rows = std::min(shape.tokens(), ops::kHeadChunkRows);
  const std::int64_t last = shape.tokens() % rows == 0 ? rows : shape.tokens() % rows;
  const std::int64_t logits = Sizes::of({rows, shape.vocabulary});
  const ops::LinearWorkspace whole = ops::linear_workspace(rows, shape.hidden, shape.vocabulary, false);
  const ops::LinearWorkspace rest = ops::linear_workspace(last, shape.hidden, shape.vocabulary, false);
  const std::int64_t forward = std::max(whole.forward, rest.forward);
  const std::int64_t backward =
      std::max({whole.backward_input, rest.backward_input, whole.backward_weight, rest.backward_weight});
  const std::int64_t norm = ops::norm_backward_workspace_bytes(shape.tokens(), shape.hidden);
  const std::int64_t always = n.rope_tables + n.statistics + n.rows;  // the rows are the losses

  SegmentBytes bytes;
  bytes.saved = n.hidden;                                          // the gradient of the residual stream
  bytes.forward_workspace = always + n.hidden + logits + forward;  // y
  bytes.backward_workspace = always + std::max(2 * n.hidden + logits + std::max(forward, backward),  // y, its gradient
                                               n.hidden + norm);                                     // its gradient
  return bytes;
}

}  // namespace tessera
