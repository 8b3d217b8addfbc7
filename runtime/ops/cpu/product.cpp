#include "runtime/ops/cpu/product.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/matmul_library.h"
#include "runtime/ops/cpu/panels.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

// Panels are made for at most this much of a product at a time, 6 MiB per operand: small enough to be still in a cache when they
// are read.
constexpr std::int64_t kBlockExtent = 3072;
constexpr std::int64_t kBlockDepth = 512;
static_assert(kBlockExtent % kTileExtent == 0 && kBlockDepth % kTileDepth == 0);

// Below this many multiply-adds a product runs on the calling thread: waking a pool costs more.
constexpr std::int64_t kSerialWork = 1 << 19;

// Tiles are padded with zeros to whole register blocks, since the library's kernels for partial blocks add in another order.
std::int64_t row_quantum() {
  switch (current_isa()) {
    case Isa::kAvx2: return 6;
    case Isa::kAvx512: return 8;
    case Isa::kPortable: break;
  }
  return 24;
}
constexpr std::int64_t kColumnQuantum = 48;

// A block of the product: the part whose panels exist at one time.
struct Block {
  std::int64_t first_row = 0, first_column = 0, first_depth = 0;
  Panels a, b;
};

// The largest block: all others are parts of it.
Block largest_block(const Product& product) {
  Block block;
  block.a = {.of_b = false, .quantum = row_quantum(), .extent = std::min(product.m, kBlockExtent)};
  block.b = {.of_b = true, .quantum = kColumnQuantum, .extent = std::min(product.n, kBlockExtent)};
  block.a.depth = std::min(product.k, kBlockDepth);
  block.b.depth = block.a.depth;
  return block;
}

void multiply_tile(const Product& product, const Block& block, const Kernels& kernels, std::int64_t row_tile,
                   std::int64_t column_tile) {
  const std::int64_t rows = block.a.extent_of(row_tile);
  const std::int64_t columns = block.b.extent_of(column_tile);
  const std::int64_t padded_rows = block.a.padded_extent_of(row_tile);
  const std::int64_t padded_columns = block.b.padded_extent_of(column_tile);
  const std::int64_t first_column = block.first_column + column_tile * kTileExtent;
  float* c = product.c + (block.first_row + row_tile * kTileExtent) * product.n + first_column;

  const bool adds = product.accumulate || block.first_depth > 0;
  const bool with_bias = !adds && product.bias != nullptr;
  // The padding of a tile at the edge has no place in c.
  const bool at_edge = padded_rows != rows || padded_columns != columns;
  alignas(64) float edge[kTileExtent * kTileExtent];
  float* out = at_edge ? edge : c;
  const std::int64_t out_ld = at_edge ? padded_columns : product.n;
  if (at_edge) {
    std::fill(edge, edge + padded_rows * padded_columns, 0.0F);
    if (adds) kernels.pack(c, product.n, rows, columns, columns, edge, padded_columns);
  }
  if (with_bias) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(out + r * out_ld, product.bias + first_column, static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
  for (std::int64_t chunk = 0; chunk < block.a.num_chunks(); ++chunk) {
    gemm({.m = padded_rows,
          .n = padded_columns,
          .k = block.a.depth_of(chunk),
          .a = block.a.at(row_tile, chunk),
          .lda = block.a.ld(row_tile, chunk),
          .b = block.b.at(column_tile, chunk),
          .ldb = block.b.ld(column_tile, chunk),
          .c = out,
          .ldc = out_ld,
          .accumulate = adds || with_bias || chunk > 0});
  }
  if (at_edge) kernels.pack(edge, padded_columns, rows, columns, columns, c, product.n);
}

class Runner {
 public:
  Runner(ThreadPool& pool, const Product& product)
      : pool_(pool),
        product_(product),
        kernels_(kernels()),
        serial_(product.m * product.n * product.k <= kSerialWork) {}

  void fill(const Block& block, bool with_a, bool with_b) {
    const std::int64_t a_bands = with_a ? num_bands(block.a, product_.a) : 0;
    const std::int64_t b_bands = with_b ? num_bands(block.b, product_.b) : 0;
    run(a_bands + b_bands, [&](std::int64_t task) {
      if (task < a_bands) {
        fill_band(block.a, kernels_, product_.a, block.first_row, block.first_depth, task);
      } else {
        fill_band(block.b, kernels_, product_.b, block.first_column, block.first_depth, task - a_bands);
      }
    });
  }

  void multiply(const Block& block) {
    const std::int64_t tiles = block.b.num_tiles();
    run(block.a.num_tiles() * tiles,
        [&](std::int64_t task) { multiply_tile(product_, block, kernels_, task / tiles, task % tiles); });
  }

 private:
  void run(std::int64_t num_tasks, const std::function<void(std::int64_t)>& task) {
    if (serial_) {
      for (std::int64_t i = 0; i < num_tasks; ++i) task(i);
    } else {
      pool_.parallel_for(num_tasks, task);
    }
  }

  ThreadPool& pool_;
  const Product& product_;
  const Kernels& kernels_;
  bool serial_;
};

std::size_t bytes_of(const Panels& panels) {
  return static_cast<std::size_t>(panels.num_elements()) * sizeof(float);
}

}  // namespace

void multiply(StreamView stream, const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  CpuDevice& device = cpu_device(stream);
  const Block largest = largest_block(product);
  const Buffer a_panels = device.allocator().allocate(bytes_of(largest.a), MemoryCategory::kWorkspace, stream);
  const Buffer b_panels = device.allocator().allocate(bytes_of(largest.b), MemoryCategory::kWorkspace, stream);
  Block block = largest;
  block.a.data = a_panels.as<float>();
  block.b.data = b_panels.as<float>();
  Runner runner(device.pool(), product);

  // Every element adds its terms in order, and its block stays in a cache meanwhile. Where one block holds all terms, A's panels
  // serve all columns; B's panels serve all rows where it holds all columns as well.
  const bool one_depth = product.k <= largest.a.depth;
  const bool one_column = product.n <= largest.b.extent;
  for (std::int64_t row = 0; row < product.m; row += largest.a.extent) {
    block.first_row = row;
    block.a.extent = std::min(largest.a.extent, product.m - row);
    for (std::int64_t column = 0; column < product.n; column += largest.b.extent) {
      block.first_column = column;
      block.b.extent = std::min(largest.b.extent, product.n - column);
      for (std::int64_t depth = 0; depth < product.k; depth += largest.a.depth) {
        block.first_depth = depth;
        block.a.depth = std::min(largest.a.depth, product.k - depth);
        block.b.depth = block.a.depth;
        runner.fill(block, column == 0 || !one_depth, row == 0 || !one_depth || !one_column);
        runner.multiply(block);
      }
    }
  }
}

std::int64_t product_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Block block = largest_block({.m = m, .n = n, .k = k});
  return static_cast<std::int64_t>(bytes_of(block.a) + bytes_of(block.b));
}

}  // namespace tessera::ops::cpu
