// Token and position lookup. Legend: B sequences, S positions, T = B*S, V vocabulary rows, H features.
#pragma once

#include "runtime/device/stream.h"
#include "runtime/device/tensor_view.h"

namespace tessera::ops {

// y[t, :] = token_table[tokens[t], :] + position_table[t mod S, :]. position_table may be empty. tokens: i32 [B, S], in
// range.
struct EmbeddingForward {
  ConstTensorView tokens, token_table, position_table;
  TensorView y;
};
void embedding_forward(StreamView stream, const EmbeddingForward& args);

// dtoken_table[V, H]: rows named by tokens get the sum of dy over their occurrences in order of t, others 0 (assign),
// or all add where accumulate. dposition_table[P, H], P >= S: sum over sequences in order; rows beyond S get 0
// (assign).
struct EmbeddingBackward {
  ConstTensorView tokens, dy;
  TensorView dtoken_table, dposition_table;
  bool accumulate = false;
};
void embedding_backward(StreamView stream, const EmbeddingBackward& args);

}  // namespace tessera::ops
