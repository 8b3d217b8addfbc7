// Sums over rows in constant chunks: the order of additions depends on the number of rows alone.
#pragma once

#include <cstdint>

#include "runtime/device/stream.h"

namespace tessera::ops::cpu {

inline constexpr std::int64_t kRowChunk = 32;

// out[c] = sum over p of parts[p * stride + c], in order of p, or out[c] + that sum where accumulate. The calling
// thread is the stream's.
void combine_parts(StreamView stream, const float* parts, std::int64_t num_parts, std::int64_t stride,
                   std::int64_t columns, float* out, bool accumulate);

// The sums of the columns of x[rows, columns] (dense).
void column_sums(StreamView stream, const float* x, std::int64_t rows, std::int64_t columns, float* out,
                 bool accumulate);

// Bytes of scratch column_sums() takes from the allocator (kWorkspace), in its blocks of 64.
std::int64_t column_sums_workspace_bytes(std::int64_t rows, std::int64_t columns);

}  // namespace tessera::ops::cpu
