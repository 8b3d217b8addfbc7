// Matrix products. The output is cut on a fixed grid of tiles (never the inner dimension), one sequential primitive per
// tile, so that an element's bits depend neither on threads nor on the tile's position. Operands are dense and
// row-major.
//
// Legend: T tokens (rows), I input features, O output features. Weights are [O, I], as in PyTorch's Linear.
#pragma once

#include "runtime/device/stream.h"
#include "runtime/device/tensor_view.h"

namespace tessera::ops {

// y[T, O] = x[T, I] · w[O, I]^T (+ bias[O]).   bias may be empty. Assigns.
struct LinearForward {
  ConstTensorView x, w, bias;
  TensorView y;
};
void linear_forward(StreamView stream, const LinearForward& args);

// dx[T, I] = dy[T, O] · w[O, I]. Assigns, or adds to dx where accumulate.
struct LinearBackwardInput {
  ConstTensorView dy, w;
  TensorView dx;
  bool accumulate = false;
};
void linear_backward_input(StreamView stream, const LinearBackwardInput& args);

// dw[O, I] = dy[T, O]^T · x[T, I]; dbias[O] = sum over T of dy. dbias may be empty. Both assign, or add inside the
// kernel where accumulate. Sums over rows of dbias follow the row index in constant chunks.
struct LinearBackwardWeight {
  ConstTensorView dy, x;
  TensorView dw, dbias;
  bool accumulate = false;
};
void linear_backward_weight(StreamView stream, const LinearBackwardWeight& args);

// The most bytes of scratch any of the three takes from the allocator (kWorkspace) for these extents: packed operands,
// at most 13 MiB.
std::int64_t linear_workspace_bytes(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs);

// The bytes of scratch of each, exactly; bias: with the sums for dbias.
struct LinearWorkspace {
  std::int64_t forward = 0, backward_input = 0, backward_weight = 0;
};
LinearWorkspace linear_workspace(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs, bool bias);

}  // namespace tessera::ops
