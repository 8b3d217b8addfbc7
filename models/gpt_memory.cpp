#include "models/gpt_memory.h"

#include <algorithm>

#include "models/device_tensor.h"
#include "runtime/base/error.h"
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
        statistics(s.layer_norm() ? 2 * rows : rows) {}

  static std::int64_t of(const Shape& shape) { return DeviceTensor::allocated_bytes(shape); }

  std::int64_t rows, hidden, query, kv, intermediate, lse;
  std::int64_t statistics;  // of one norm
};

// Follows one call: what it takes (bytes above 0) and frees (below 0), in order.
class Meter {
 public:
  void activations(std::int64_t bytes) {
    memory_.kept += bytes;
    note();
  }
  void scratch(std::int64_t bytes) {
    scratch_ += bytes;
    note();
  }
  // Scratch of an operator, gone when it returns.
  void inside(std::int64_t bytes) {
    scratch(bytes);
    scratch(-bytes);
  }
  SegmentMemory memory() const {
    require(scratch_ == 0, "a segment's scratch is gone when it returns");
    return memory_;
  }

 private:
  void note() {
    memory_.activations_peak = std::max(memory_.activations_peak, memory_.kept);
    memory_.workspace_peak = std::max(memory_.workspace_peak, scratch_);
    if (memory_.kept + scratch_ > memory_.activations_at_peak + memory_.workspace_at_peak) {
      memory_.activations_at_peak = memory_.kept;
      memory_.workspace_at_peak = scratch_;
    }
  }

  SegmentMemory memory_;
  std::int64_t scratch_ = 0;
};

// The scratch of a block's operators.
struct BlockOperators {
  BlockOperators(const GptShape& s, int num_threads)
      : query(linear(s, s.hidden, s.query_size())),
        key(linear(s, s.hidden, s.kv_size())),
        output(linear(s, s.query_size(), s.hidden)),
        up(linear(s, s.hidden, s.intermediate)),
        down(linear(s, s.intermediate, s.hidden)),
        norm(ops::norm_backward_workspace_bytes(s.tokens(), s.hidden)),
        attention_forward(ops::attention_workspace_bytes(s.attention(), num_threads, false)),
        attention_backward(ops::attention_workspace_bytes(s.attention(), num_threads, true)) {}

  static ops::LinearWorkspace linear(const GptShape& s, std::int64_t in, std::int64_t out) {
    return ops::linear_workspace(s.tokens(), in, out, s.bias);
  }

  ops::LinearWorkspace query, key, output, up, down;  // value is as key, gate as up
  std::int64_t norm, attention_forward, attention_backward;
};

// gpt_block.cpp, block_forward.
SegmentMemory block_forward_memory(const GptShape& s, const Sizes& n, const BlockOperators& op, bool keep) {
  Meter m;
  const auto kept = [&](std::int64_t bytes) { keep ? m.activations(bytes) : m.scratch(bytes); };
  kept(n.statistics);
  m.scratch(n.hidden);  // h1
  kept(n.query);
  m.inside(op.query.forward);
  for (int key_and_value = 0; key_and_value < 2; ++key_and_value) {
    kept(n.kv);
    m.inside(op.key.forward);
  }
  m.scratch(-n.hidden);
  kept(n.query);  // the attention's output
  if (keep) m.activations(n.lse);
  m.inside(op.attention_forward);
  if (!keep) m.scratch(-n.query - 2 * n.kv);
  m.scratch(n.hidden);  // projected
  m.inside(op.output.forward);
  if (!keep) m.scratch(-n.query);
  if (keep) m.activations(n.hidden);  // r; without a backward it takes x's place
  kept(n.statistics);
  m.scratch(n.hidden);   // h2
  m.scratch(-n.hidden);  // projected
  for (int input = 0; input < (s.gated() ? 2 : 1); ++input) {
    kept(n.intermediate);
    m.inside(op.up.forward);
  }
  m.scratch(-n.hidden);
  if (keep) m.scratch(n.intermediate);                 // activated; without a backward it takes its input's place
  if (!keep && s.gated()) m.scratch(-n.intermediate);  // up
  m.activations(n.hidden);                             // y
  m.inside(op.down.forward);
  m.scratch(-n.intermediate);
  if (!keep) {
    m.activations(-n.hidden);
    m.scratch(-2 * n.statistics);
  }
  return m.memory();
}

// gpt_block.cpp, block_backward.
SegmentMemory block_backward_memory(const GptShape& s, const Sizes& n, const BlockOperators& op) {
  Meter m;
  m.scratch(n.intermediate);  // activated
  m.inside(op.down.backward_weight);
  m.scratch(-n.intermediate);
  m.scratch(n.intermediate);  // its gradient
  m.inside(op.down.backward_input);
  m.scratch(-n.intermediate);
  m.scratch(n.hidden);  // h2
  m.inside(op.up.backward_weight);
  m.scratch(-n.hidden);
  m.scratch(n.hidden);  // its gradient
  for (int input = 0; input < (s.gated() ? 2 : 1); ++input) {
    m.inside(op.up.backward_input);
    m.activations(-n.intermediate);
  }
  m.inside(op.norm);
  m.activations(-n.hidden - n.statistics);
  m.scratch(-n.hidden);

  m.inside(op.output.backward_weight);
  m.scratch(n.query);  // gradient of the attention's output
  m.inside(op.output.backward_input);
  m.scratch(n.query + 2 * n.kv);  // of q, k, v
  m.inside(op.attention_backward);
  m.scratch(-n.query);
  m.activations(-2 * n.query - 2 * n.kv - n.lse);
  m.scratch(n.hidden);  // h1
  m.inside(std::max(op.query.backward_weight, op.key.backward_weight));
  m.scratch(-n.hidden);
  m.scratch(n.hidden);  // its gradient
  m.inside(op.query.backward_input);
  m.scratch(-n.query);
  for (int key_and_value = 0; key_and_value < 2; ++key_and_value) {
    m.inside(op.key.backward_input);
    m.scratch(-n.kv);
  }
  m.inside(op.norm);
  m.scratch(-n.hidden);
  m.activations(-n.hidden - n.statistics);
  return m.memory();
}

// The scratch of ops::head_loss: the logits of a chunk of rows while a product runs; the last chunk may be smaller.
std::int64_t head_loss_bytes(const GptShape& s, bool with_gradient) {
  const std::int64_t rows = std::min(s.tokens(), ops::kHeadChunkRows);
  const std::int64_t last = s.tokens() % rows == 0 ? rows : s.tokens() % rows;
  const ops::LinearWorkspace whole = ops::linear_workspace(rows, s.hidden, s.vocabulary, false);
  const ops::LinearWorkspace rest = ops::linear_workspace(last, s.hidden, s.vocabulary, false);
  std::int64_t product = std::max(whole.forward, rest.forward);
  if (with_gradient) {
    product =
        std::max({product, whole.backward_input, rest.backward_input, whole.backward_weight, rest.backward_weight});
  }
  return Sizes::of({rows, s.vocabulary}) + product;
}

// gpt_head.cpp, head_loss_and_gradient.
SegmentMemory head_training_memory(const GptShape& s, const Sizes& n) {
  Meter m;
  m.scratch(n.statistics + n.hidden);  // y
  m.scratch(n.rows + n.hidden);        // losses, gradient of y
  m.inside(head_loss_bytes(s, true));
  m.scratch(-n.hidden);
  m.activations(n.hidden);  // the gradient of the residual stream
  m.inside(ops::norm_backward_workspace_bytes(s.tokens(), s.hidden));
  m.scratch(-n.statistics - n.rows - n.hidden);
  m.activations(-n.hidden);  // the residual stream
  return m.memory();
}

// gpt_head.cpp, head_loss_only.
SegmentMemory head_evaluation_memory(const GptShape& s, const Sizes& n) {
  Meter m;
  m.scratch(n.statistics + n.hidden + n.rows);
  m.inside(head_loss_bytes(s, false));
  m.scratch(-n.statistics - n.hidden - n.rows);
  m.activations(-n.hidden);
  return m.memory();
}

// gpt_head.cpp, head_logits.
SegmentMemory head_logits_memory(const GptShape& s) {
  Meter m;
  const std::int64_t norm = (s.layer_norm() ? 2 : 1) * Sizes::of({1}) + Sizes::of({1, s.hidden});
  const std::int64_t logits = Sizes::of({1, s.vocabulary});
  m.scratch(norm + logits);
  m.inside(ops::linear_workspace(1, s.hidden, s.vocabulary, false).forward);
  m.scratch(-norm - logits);
  return m.memory();
}

}  // namespace

std::int64_t constant_bytes(const GptShape& shape) {
  return shape.rope ? 2 * Sizes::of({shape.seq, shape.head_dim / 2}) : 0;
}

void set_embedding_memory(const GptShape& shape, SegmentSpec& segment) {
  Meter residual, gradient;
  residual.activations(Sizes(shape).hidden);
  gradient.activations(-Sizes(shape).hidden);
  segment.forward = segment.evaluate = residual.memory();
  segment.backward = gradient.memory();
}

void set_block_memory(const GptShape& shape, int num_threads, SegmentSpec& segment) {
  const Sizes n(shape);
  const BlockOperators op(shape, num_threads);
  segment.forward = block_forward_memory(shape, n, op, true);
  segment.backward = block_backward_memory(shape, n, op);
  segment.evaluate = block_forward_memory(shape, n, op, false);
}

void set_head_memory(const GptShape& shape, SegmentSpec& segment) {
  const Sizes n(shape);
  segment.backward = head_training_memory(shape, n);
  segment.evaluate = head_evaluation_memory(shape, n);
  segment.logits = head_logits_memory(shape);
}

}  // namespace tessera
