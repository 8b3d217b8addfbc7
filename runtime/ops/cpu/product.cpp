#include "runtime/ops/cpu/product.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/matmul_library.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

// A tile of A (192 x 256), one of B (256 x 192) and their output stay in a second-level cache. The extents are
// multiples of the register blocks of oneDNN's kernels: 6 x 16 (AVX2), 8 x 48 (AVX-512).
constexpr std::int64_t kTileRows = 192;
constexpr std::int64_t kTileColumns = 192;
constexpr std::int64_t kTileDepth = 256;

// Panels are made for at most this much of a product at a time: 12 MiB per operand.
constexpr std::int64_t kPanelExtent = 3072;
constexpr std::int64_t kPanelElements = kPanelExtent * 1024;

// Below this many multiply-adds a product runs on the calling thread: waking a pool costs more.
constexpr std::int64_t kSerialWork = 1 << 19;

// Rows and columns are padded with zeros to whole register blocks, since the library's kernels for partial blocks add
// in another order.
std::int64_t row_quantum() {
  switch (current_isa()) {
    case Isa::kAvx2: return 6;
    case Isa::kAvx512: return 8;
    case Isa::kPortable: break;
  }
  return 24;
}
constexpr std::int64_t kColumnQuantum = 48;

// How a product is cut into blocks whose panels exist at one time.
struct Blocks {
  std::int64_t rows, columns, depth;
};

Blocks blocks_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  const std::int64_t rows = std::min(round_up(m, kTileRows), kPanelExtent);
  const std::int64_t columns = std::min(round_up(n, kTileColumns), kPanelExtent);
  const std::int64_t depth = kPanelElements / std::max(rows, columns) / kTileDepth * kTileDepth;
  return {rows, columns, std::min(k, depth)};
}

// One block of the product, and where its panels are. Panel i holds tile row i: its chunks of kTileDepth one after
// another, each dense.
struct Block {
  const Product& product;
  const Kernels& kernels;
  std::int64_t quantum;
  float* a_panels;
  float* b_panels;
  std::int64_t first_row, rows, first_column, columns, first_depth, depth;

  std::int64_t num_row_tiles() const { return ceil_div(rows, kTileRows); }
  std::int64_t num_column_tiles() const { return ceil_div(columns, kTileColumns); }
  std::int64_t num_chunks() const { return ceil_div(depth, kTileDepth); }
  std::int64_t rows_of(std::int64_t tile) const { return std::min(kTileRows, rows - tile * kTileRows); }
  std::int64_t columns_of(std::int64_t tile) const { return std::min(kTileColumns, columns - tile * kTileColumns); }
  std::int64_t depth_of(std::int64_t chunk) const { return std::min(kTileDepth, depth - chunk * kTileDepth); }
  std::int64_t padded_rows(std::int64_t tile) const { return round_up(rows_of(tile), quantum); }
  std::int64_t padded_columns(std::int64_t tile) const { return round_up(columns_of(tile), kColumnQuantum); }
  float* a_panel(std::int64_t tile, std::int64_t chunk) const {
    return a_panels + tile * kTileRows * depth + padded_rows(tile) * chunk * kTileDepth;
  }
  float* b_panel(std::int64_t tile, std::int64_t chunk) const {
    return b_panels + tile * kTileColumns * depth + padded_columns(tile) * chunk * kTileDepth;
  }

  void pack_a(std::int64_t tile, std::int64_t chunk) const;
  void pack_b(std::int64_t tile, std::int64_t chunk) const;
  void multiply_tile(std::int64_t row_tile, std::int64_t column_tile) const;
};

void Block::pack_a(std::int64_t tile, std::int64_t chunk) const {
  const Operand& a = product.a;
  const std::int64_t row = first_row + tile * kTileRows;
  const std::int64_t k = first_depth + chunk * kTileDepth;
  const std::int64_t num_rows = rows_of(tile);
  const std::int64_t num_k = depth_of(chunk);
  float* panel = a_panel(tile, chunk);
  if (a.transposed) {
    kernels.pack_transposed(a.data + k * a.ld + row, a.ld, num_k, num_rows, num_k, panel, num_k);
  } else {
    kernels.pack(a.data + row * a.ld + k, a.ld, num_rows, num_k, num_k, panel, num_k);
  }
  std::fill(panel + num_rows * num_k, panel + padded_rows(tile) * num_k, 0.0F);
}

void Block::pack_b(std::int64_t tile, std::int64_t chunk) const {
  const Operand& b = product.b;
  const std::int64_t column = first_column + tile * kTileColumns;
  const std::int64_t k = first_depth + chunk * kTileDepth;
  const std::int64_t num_columns = columns_of(tile);
  const std::int64_t padded = padded_columns(tile);
  if (b.transposed) {
    kernels.pack_transposed(b.data + column * b.ld + k, b.ld, num_columns, depth_of(chunk), padded,
                            b_panel(tile, chunk), padded);
  } else {
    kernels.pack(b.data + k * b.ld + column, b.ld, depth_of(chunk), num_columns, padded, b_panel(tile, chunk), padded);
  }
}

void Block::multiply_tile(std::int64_t row_tile, std::int64_t column_tile) const {
  const std::int64_t num_rows = rows_of(row_tile);
  const std::int64_t num_columns = columns_of(column_tile);
  const std::int64_t row_count = padded_rows(row_tile);
  const std::int64_t column_count = padded_columns(column_tile);
  const std::int64_t column = first_column + column_tile * kTileColumns;
  float* c = product.c + (first_row + row_tile * kTileRows) * product.n + column;

  const bool first = first_depth == 0;
  const bool adds = product.accumulate || !first;
  const bool with_bias = first && !product.accumulate && product.bias != nullptr;
  // The padding of a tile at the edge has no place in c.
  const bool at_edge = row_count != num_rows || column_count != num_columns;
  alignas(64) float edge[kTileRows * kTileColumns];
  float* out = at_edge ? edge : c;
  const std::int64_t out_ld = at_edge ? column_count : product.n;
  if (at_edge) {
    if (adds) {
      kernels.pack(c, product.n, num_rows, num_columns, column_count, edge, column_count);
      std::fill(edge + num_rows * column_count, edge + row_count * column_count, 0.0F);
    } else {
      std::fill(edge, edge + row_count * column_count, 0.0F);
    }
  }
  if (with_bias) {
    for (std::int64_t r = 0; r < num_rows; ++r) {
      std::memcpy(out + r * out_ld, product.bias + column, static_cast<std::size_t>(num_columns) * sizeof(float));
    }
  }
  for (std::int64_t chunk = 0; chunk < num_chunks(); ++chunk) {
    const std::int64_t num_k = depth_of(chunk);
    gemm({.m = row_count,
          .n = column_count,
          .k = num_k,
          .a = a_panel(row_tile, chunk),
          .lda = num_k,
          .b = b_panel(column_tile, chunk),
          .ldb = column_count,
          .c = out,
          .ldc = out_ld,
          .accumulate = adds || with_bias || chunk > 0});
  }
  if (at_edge) kernels.pack(edge, column_count, num_rows, num_columns, num_columns, c, product.n);
}

void run(ThreadPool& pool, bool serial, std::int64_t num_tasks, const std::function<void(std::int64_t)>& task) {
  if (serial) {
    for (std::int64_t i = 0; i < num_tasks; ++i) task(i);
  } else {
    pool.parallel_for(num_tasks, task);
  }
}

}  // namespace

void multiply(StreamView stream, const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  CpuDevice& device = cpu_device(stream);
  const Blocks size = blocks_of(product.m, product.n, product.k);
  const bool serial = product.m * product.n * product.k <= kSerialWork;
  const auto panel_bytes = [&](std::int64_t extent) {
    return static_cast<std::size_t>(extent * size.depth) * sizeof(float);
  };
  const Buffer a_panels = device.allocator().allocate(panel_bytes(size.rows), MemoryCategory::kWorkspace, stream);
  const Buffer b_panels = device.allocator().allocate(panel_bytes(size.columns), MemoryCategory::kWorkspace, stream);

  Block block{.product = product,
              .kernels = kernels(),
              .quantum = row_quantum(),
              .a_panels = a_panels.as<float>(),
              .b_panels = b_panels.as<float>()};
  // The first panels stay good for the whole depth block where one block holds all rows or all columns.
  for (std::int64_t k = 0; k < product.k; k += size.depth) {
    block.first_depth = k;
    block.depth = std::min(size.depth, product.k - k);
    for (std::int64_t row = 0; row < product.m; row += size.rows) {
      block.first_row = row;
      block.rows = std::min(size.rows, product.m - row);
      for (std::int64_t column = 0; column < product.n; column += size.columns) {
        block.first_column = column;
        block.columns = std::min(size.columns, product.n - column);
        const std::int64_t chunks = block.num_chunks();
        const std::int64_t a_tasks = column == 0 ? block.num_row_tiles() * chunks : 0;
        const std::int64_t b_tasks = row == 0 || product.n > size.columns ? block.num_column_tiles() * chunks : 0;
        run(device.pool(), serial, a_tasks + b_tasks, [&](std::int64_t task) {
          if (task < a_tasks) {
            block.pack_a(task / chunks, task % chunks);
          } else {
            block.pack_b((task - a_tasks) / chunks, (task - a_tasks) % chunks);
          }
        });
        const std::int64_t column_tiles = block.num_column_tiles();
        run(device.pool(), serial, block.num_row_tiles() * column_tiles,
            [&](std::int64_t task) { block.multiply_tile(task / column_tiles, task % column_tiles); });
      }
    }
  }
}

std::int64_t product_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Blocks size = blocks_of(m, n, k);
  return (size.rows + size.columns) * size.depth * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace tessera::ops::cpu
