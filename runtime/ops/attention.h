// Causal scaled dot-product attention that never stores all scores (online over key blocks as in FlashAttention, Dao et
// al. 2022), with grouped-query heads. Fixed block sizes; every head is packed into dense scratch, so that an element's
// bits depend neither on the number of heads next to it nor on threads.
//
// Legend: B sequences, S positions, Hq query heads, Hk key/value heads (Hq a multiple of Hk; query head h reads kv head
// h / (Hq / Hk)), D head_dim. q, o: [B*S, Hq*D]; k, v: [B*S, Hk*D]; lse: [B, Hq, S].
#pragma once

#include "runtime/device/stream.h"
#include "runtime/device/tensor_view.h"
#include "runtime/ops/rope_frequencies.h"

namespace tessera::ops {

struct AttentionShape {
  std::int64_t batch = 0, seq = 0, query_heads = 0, kv_heads = 0, head_dim = 0;
};

// o = softmax(q kᵀ / √D, causal) v; lse = log of the sum of exponentials of the scaled scores, per row.
struct AttentionForward {
  AttentionShape shape;
  ConstTensorView q, k, v;
  TensorView o, lse;  // lse may be empty (evaluation)
};
void attention_forward(StreamView stream, const AttentionForward& args);

// dq, dk, dv from do (dout) and what forward saved. Assigns. dk and dv sum their query heads in order of the head
// index. dq may alias q's gradient buffer only; no output aliases an input, except dout may alias nothing.
struct AttentionBackward {
  AttentionShape shape;
  ConstTensorView q, k, v, o, lse, dout;
  TensorView dq, dk, dv;
};
void attention_backward(StreamView stream, const AttentionBackward& args);

// Bytes of scratch either call takes from the allocator (kWorkspace), for the memory ledger.
std::int64_t attention_workspace_bytes(const AttentionShape& shape, int num_threads, bool backward);

// Rotary embedding (Su et al. 2021) in the rotate-half form of Llama: for pair (i, i + D/2) at position p,
// angle = p * rope_frequencies()[i]. In place on x [B*S, heads*D]. inverse: applies the transposed rotation (the
// backward). cos_table, sin_table: [S, D/2], made by make_rope_tables in double and rounded once.
struct Rope {
  std::int64_t batch = 0, seq = 0, heads = 0, head_dim = 0;
  TensorView x;
  ConstTensorView cos_table, sin_table;
  bool inverse = false;
};
void rope(StreamView stream, const Rope& args);
void make_rope_tables(std::int64_t seq, std::int64_t head_dim, const RopeFrequencies& options, float* cos_table,
                      float* sin_table);

}  // namespace tessera::ops
