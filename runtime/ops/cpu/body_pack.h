// Copies into the dense panels that matrix products read.
#pragma once

#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/cpu/lanes.h"

namespace tessera::ops::cpu::TESSERA_ISA {

inline void pack(const float* source, std::int64_t source_ld, std::int64_t rows, std::int64_t columns,
                 std::int64_t padded_columns, float* destination, std::int64_t destination_ld) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = source + r * source_ld;
    float* to = destination + r * destination_ld;
    for_blocks(columns,
               [&](std::int64_t i, std::int64_t count) { store_block(to + i, count, load_block(from + i, count)); });
    for (std::int64_t c = columns; c < padded_columns; ++c) to[c] = 0.0F;
  }
}

// A square of kSquare x kSquare elements, transposed in registers.
#if TESSERA_NATIVE_BYTES >= 32
constexpr int kSquare = 8;
using Row = float __attribute__((vector_size(32)));

TESSERA_INLINE void transpose_square(const float* from, std::int64_t from_ld, float* to, std::int64_t to_ld) {
  Row in[8];
  Row pairs[8];
  Row fours[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) __builtin_memcpy(&in[i], from + i * from_ld, sizeof(Row));
    // Interleave neighbours, then pairs of them, then exchange halves.
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(in[i], in[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(in[i], in[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    fours[i] = __builtin_shufflevector(pairs[i], pairs[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    fours[i + 1] = __builtin_shufflevector(pairs[i], pairs[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    fours[i + 2] = __builtin_shufflevector(pairs[i + 1], pairs[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    fours[i + 3] = __builtin_shufflevector(pairs[i + 1], pairs[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Row low = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const Row high = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    __builtin_memcpy(to + i * to_ld, &low, sizeof(Row));
    __builtin_memcpy(to + (i + 4) * to_ld, &high, sizeof(Row));
  }
}
#else
constexpr int kSquare = 4;
using Row = float __attribute__((vector_size(16)));

TESSERA_INLINE void transpose_square(const float* from, std::int64_t from_ld, float* to, std::int64_t to_ld) {
  Row in[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&in[i], from + i * from_ld, sizeof(Row));
  const Row low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Row high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Row low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Row high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  const Row out[4] = {
      __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
      __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) __builtin_memcpy(to + i * to_ld, &out[i], sizeof(Row));
}
#endif

inline void pack_transposed(const float* source, std::int64_t source_ld, std::int64_t rows, std::int64_t columns,
                            std::int64_t padded_rows, float* destination, std::int64_t destination_ld) {
  // Few source rows at a time, along their columns: rows a multiple of 4 KiB apart share one set of the first-level cache.
  for (std::int64_t r = 0; r < rows; r += kSquare) {
    const std::int64_t count = rows - r < kSquare ? rows - r : kSquare;
    const float* from = source + r * source_ld;
    float* to = destination + r;
    std::int64_t c = 0;
    if (count == kSquare) {
      for (; c + kSquare <= columns; c += kSquare)
        transpose_square(from + c, source_ld, to + c * destination_ld, destination_ld);
    }
    for (; c < columns; ++c) {
      for (std::int64_t i = 0; i < count; ++i) to[c * destination_ld + i] = from[i * source_ld + c];
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = rows; r < padded_rows; ++r) destination[c * destination_ld + r] = 0.0F;
  }
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
