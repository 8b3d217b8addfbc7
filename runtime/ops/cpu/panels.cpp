#include "runtime/ops/cpu/panels.h"

#include <algorithm>

#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

// Rows of A's panels are this much longer than their terms: rows 1 KiB apart would share few sets of the first-level cache.
constexpr std::int64_t kRowGap = 16;

// Stored rows that are read side by side: whole cache lines of a transposed panel, few enough for the prefetchers. Divides
// kTileExtent.
constexpr std::int64_t kRowsAtOnce = 16;
constexpr std::int64_t kBandElements = 32768;

// Whether a stored row of the operand is an outer element (its columns then run over the sum), or a term of the sum.
bool rows_are_outer(const Panels& panels, const Operand& operand) {
  return panels.of_b == operand.transposed;
}

std::int64_t stored_rows(const Panels& panels, const Operand& operand) {
  return rows_are_outer(panels, operand) ? panels.extent : panels.depth;
}

std::int64_t rows_per_band(const Panels& panels, const Operand& operand) {
  const std::int64_t columns = rows_are_outer(panels, operand) ? panels.depth : panels.extent;
  return round_up(ceil_div(kBandElements, columns), kRowsAtOnce);
}

// A's panels are padded with whole rows of zeros; B's padding comes with its columns.
void fill_padding(const Panels& panels) {
  const std::int64_t tile = panels.num_tiles() - 1;
  const std::int64_t ld = panels.ld(tile);
  float* panel = panels.at(tile);
  std::fill(panel + panels.extent_of(tile) * ld, panel + panels.padded_extent_of(tile) * ld, 0.0F);
}

}  // namespace

std::int64_t Panels::num_tiles() const {
  return ceil_div(extent, kTileExtent);
}
std::int64_t Panels::extent_of(std::int64_t tile) const {
  return std::min(kTileExtent, extent - tile * kTileExtent);
}
std::int64_t Panels::padded_extent_of(std::int64_t tile) const {
  return round_up(extent_of(tile), quantum);
}
std::int64_t Panels::ld(std::int64_t tile) const {
  return of_b ? padded_extent_of(tile) : depth + kRowGap;
}
float* Panels::at(std::int64_t tile) const {
  return data + tile * kTileExtent * (of_b ? depth : depth + kRowGap);
}
std::int64_t Panels::num_elements() const {
  return num_tiles() * kTileExtent * (of_b ? depth : depth + kRowGap);
}

std::int64_t num_bands(const Panels& panels, const Operand& operand) {
  return ceil_div(stored_rows(panels, operand), rows_per_band(panels, operand));
}

void fill_band(const Panels& panels, const Kernels& kernels, const Operand& operand, std::int64_t first_outer,
               std::int64_t first_depth, std::int64_t band) {
  const std::int64_t first = band * rows_per_band(panels, operand);
  const std::int64_t last = std::min(stored_rows(panels, operand), first + rows_per_band(panels, operand));
  if (band == 0 && !panels.of_b) fill_padding(panels);
  for (std::int64_t row = first; row < last; row += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, last - row);
    if (rows_are_outer(panels, operand)) {
      const std::int64_t tile = row / kTileExtent;
      const std::int64_t outer = row % kTileExtent;
      const std::int64_t padded = row + rows == panels.extent ? panels.padded_extent_of(tile) - outer : rows;
      const float* from = operand.data + (first_outer + row) * operand.ld + first_depth;
      const std::int64_t ld = panels.ld(tile);
      if (operand.transposed) {
        kernels.pack_transposed(from, operand.ld, rows, panels.depth, padded, panels.at(tile) + outer, ld);
      } else {
        kernels.pack(from, operand.ld, rows, panels.depth, panels.depth, panels.at(tile) + outer * ld, ld);
      }
    } else {
      for (std::int64_t tile = 0; tile < panels.num_tiles(); ++tile) {
        const float* from = operand.data + (first_depth + row) * operand.ld + first_outer + tile * kTileExtent;
        const std::int64_t columns = panels.extent_of(tile);
        const std::int64_t ld = panels.ld(tile);
        if (operand.transposed) {
          kernels.pack_transposed(from, operand.ld, rows, columns, rows, panels.at(tile) + row, ld);
        } else {
          kernels.pack(from, operand.ld, rows, columns, panels.padded_extent_of(tile), panels.at(tile) + row * ld, ld);
        }
      }
    }
  }
}

}  // namespace tessera::ops::cpu
