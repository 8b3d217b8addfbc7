#include "models/gpt_memory.h"

#include <algorithm>

#include "models/device_tensor.h"
#include "runtime/ops/cross_entropy.h"

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

// The stages of gpt_block.cpp, in its order.
SegmentBytes block_bytes(const GptShape& shape, int num_threads) {
  const Sizes n(shape);
  const std::int64_t inputs = (shape.gated() ? 2 : 1) * n.intermediate;
  SegmentBytes bytes;
  bytes.saved = 2 * n.statistics + 2 * n.query + 2 * n.kv + n.lse + n.hidden + inputs + n.hidden;
  bytes.forward_workspace = std::max({
      n.hidden,  // h1
      ops::attention_workspace_bytes(shape.attention(), num_threads, false),
      2 * n.hidden,    // projected, h2
      n.intermediate,  // activated
  });
  bytes.backward_workspace = std::max({
      n.intermediate,  // activated, then its gradient
      n.hidden,        // h2, then its gradient
      2 * n.query + 2 * n.kv + ops::attention_workspace_bytes(shape.attention(), num_threads, true),
      n.query + 2 * n.kv + n.hidden,  // dq, dk, dv and h1, then its gradient
  });
  bytes.forward_workspace += n.rope_tables;
  bytes.backward_workspace += n.rope_tables;
  return bytes;
}

SegmentBytes head_bytes(const GptShape& shape) {
  const Sizes n(shape);
  const std::int64_t logits = ops::head_loss_workspace_bytes(shape.tokens(), shape.vocabulary);
  SegmentBytes bytes;
  bytes.saved = n.hidden;  // the gradient of the residual stream
  bytes.forward_workspace = n.rope_tables + n.statistics + n.hidden + n.rows + logits;
  bytes.backward_workspace = n.rope_tables + n.statistics + 2 * n.hidden + n.rows + logits;
  return bytes;
}

}  // namespace tessera
