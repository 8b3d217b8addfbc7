// One number for what the kernels of this machine compute: part of the numerics record. Ranks whose digests differ cannot give
// equal bits.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/device/stream.h"

namespace tessera::ops {

// A linear layer of the job: x[tokens, inputs], w[outputs, inputs].
struct ProductShape {
  std::int64_t tokens = 0, inputs = 0, outputs = 0;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

// A hash of the outputs of every kind of kernel on fixed inputs, and of the three products of each shape. Since an element of a
// product depends on one row and one column alone, a corner of each stands for all of it: the whole takes some milliseconds.
// Equal for any number of threads.
std::uint64_t kernel_digest(StreamView stream, std::span<const ProductShape> products);

}  // namespace tessera::ops
