// The one matrix product behind every linear operator.
//
// Both operands are copied into dense panels and multiplied tile by tile: 192 x 192 outputs, 256 terms of the sum at a
// time, in order. Every call of the library then has operands of the same form, so that an element's bits are a
// function of its row of A and its column of B alone: not of threads, of the tile's position, or of the size of the
// matrices. (In place, strides that are multiples of 4 KiB halve the library's speed, and rows at the end of a matrix
// take another kernel with other bits.)
#pragma once

#include <cstdint>

#include "runtime/device/stream.h"

namespace tessera::ops::cpu {

// An operand as stored: element (r, c) of the operand is data[r * ld + c], or data[c * ld + r] where transposed.
struct Operand {
  const float* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
};

// c[m, n] (dense) = a[m, k] · b[k, n] (+ bias[n] on every row), or c += a · b where accumulate (then without bias).
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  Operand a, b;
  const float* bias = nullptr;
  float* c = nullptr;
  bool accumulate = false;
};
// Runs on the calling thread and the device's pool; the stream orders the scratch.
void multiply(StreamView stream, const Product& product);

// Bytes of panels multiply() takes from the allocator (kWorkspace).
std::int64_t product_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace tessera::ops::cpu
