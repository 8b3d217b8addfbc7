// Operands of a product as dense panels: tiles of 192 outer elements (rows of A, columns of B) by up to 256 terms of the sum.
// A's panels are [outer, depth], B's are [depth, outer]: what a plain row-major product reads.
#pragma once

#include <cstdint>

#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/cpu/product.h"

namespace tessera::ops::cpu {

// A tile of A, one of B and their output stay in a second-level cache. The extents are multiples of the register blocks of
// oneDNN's kernels: 6 x 16 (AVX2), 8 x 48 (AVX-512).
inline constexpr std::int64_t kTileExtent = 192;
inline constexpr std::int64_t kTileDepth = 256;

// The panels of `extent` outer elements and `depth` terms of one operand.
struct Panels {
  bool of_b = false;
  std::int64_t quantum = 1;  // outer elements are padded with zeros to a multiple of this, per tile
  std::int64_t extent = 0;
  std::int64_t depth = 0;  // at most kTileDepth
  float* data = nullptr;

  std::int64_t num_tiles() const;
  std::int64_t extent_of(std::int64_t tile) const;
  std::int64_t padded_extent_of(std::int64_t tile) const;
  // Leading dimension of one panel.
  std::int64_t ld(std::int64_t tile) const;
  float* at(std::int64_t tile) const;
  // Elements that `extent` and `depth` may take.
  std::int64_t num_elements() const;
};

// Filling panels is cut into bands of the operand's stored rows, so that each is read along its rows.
std::int64_t num_bands(const Panels& panels, const Operand& operand);
// The operand's elements from (first_outer, first_depth) on. Bands are independent of each other.
void fill_band(const Panels& panels, const Kernels& kernels, const Operand& operand, std::int64_t first_outer,
               std::int64_t first_depth, std::int64_t band);

}  // namespace tessera::ops::cpu
