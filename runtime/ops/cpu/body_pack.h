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

// Four lanes are enough for a transposition, and every instruction set has them.
using Quad = float __attribute__((vector_size(16)));
using QuadIndex = std::int32_t __attribute__((vector_size(16)));

TESSERA_INLINE void transpose_4x4(const float* from, std::int64_t from_ld, float* to, std::int64_t to_ld) {
  Quad a, b, c, d;
  __builtin_memcpy(&a, from, 16);
  __builtin_memcpy(&b, from + from_ld, 16);
  __builtin_memcpy(&c, from + 2 * from_ld, 16);
  __builtin_memcpy(&d, from + 3 * from_ld, 16);
  const Quad ab_low = __builtin_shuffle(a, b, QuadIndex{0, 4, 1, 5});
  const Quad ab_high = __builtin_shuffle(a, b, QuadIndex{2, 6, 3, 7});
  const Quad cd_low = __builtin_shuffle(c, d, QuadIndex{0, 4, 1, 5});
  const Quad cd_high = __builtin_shuffle(c, d, QuadIndex{2, 6, 3, 7});
  a = __builtin_shuffle(ab_low, cd_low, QuadIndex{0, 1, 4, 5});
  b = __builtin_shuffle(ab_low, cd_low, QuadIndex{2, 3, 6, 7});
  c = __builtin_shuffle(ab_high, cd_high, QuadIndex{0, 1, 4, 5});
  d = __builtin_shuffle(ab_high, cd_high, QuadIndex{2, 3, 6, 7});
  __builtin_memcpy(to, &a, 16);
  __builtin_memcpy(to + to_ld, &b, 16);
  __builtin_memcpy(to + 2 * to_ld, &c, 16);
  __builtin_memcpy(to + 3 * to_ld, &d, 16);
}

inline void pack_transposed(const float* source, std::int64_t source_ld, std::int64_t rows, std::int64_t columns,
                            std::int64_t padded_rows, float* destination, std::int64_t destination_ld) {
  // Blocks of 16 x 16: whole cache lines on both sides, few enough that large power-of-two strides do not evict them.
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t r = 0; r < rows; r += kBlock) {
    const std::int64_t block_rows = rows - r < kBlock ? rows - r : kBlock;
    for (std::int64_t c = 0; c < columns; c += kBlock) {
      const std::int64_t block_columns = columns - c < kBlock ? columns - c : kBlock;
      const float* from = source + r * source_ld + c;
      float* to = destination + c * destination_ld + r;
      if (block_rows == kBlock && block_columns == kBlock) {
        for (int i = 0; i < kBlock; i += 4) {
          for (int j = 0; j < kBlock; j += 4) {
            transpose_4x4(from + i * source_ld + j, source_ld, to + j * destination_ld + i, destination_ld);
          }
        }
      } else {
        for (std::int64_t j = 0; j < block_columns; ++j) {
          for (std::int64_t i = 0; i < block_rows; ++i) to[j * destination_ld + i] = from[i * source_ld + j];
        }
      }
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = rows; r < padded_rows; ++r) destination[c * destination_ld + r] = 0.0F;
  }
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
