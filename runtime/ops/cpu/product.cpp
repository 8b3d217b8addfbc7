#include "runtime/ops/cpu/product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/matmul_library.h"
#include "runtime/ops/cpu/panels.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

// Panels are made for at most this much of a product at a time, 3 MiB per operand: small enough to be still in a cache when they
// are read. While one block is multiplied, the panels of the next are filled. (Half the rows were as fast.)
constexpr std::int64_t kBlockExtent = 3072;
constexpr std::int64_t kBlockDepth = kTileDepth;
static_assert(kBlockExtent % kTileExtent == 0);

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

// A block of the product: the part whose panels are multiplied at one time.
struct Block {
  std::int64_t first_row = 0, first_column = 0, first_depth = 0;
  Panels a, b;
  bool fills_a = true, fills_b = true;  // otherwise the panels of the block before serve
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

// The blocks in the order of their multiplication: every element adds its terms in order, and its block stays in a cache meanwhile. Where one block
// holds all terms, A's panels serve all columns; B's panels serve all rows where it holds all columns as well.
std::vector<Block> blocks_of(const Product& product) {
  const Block largest = largest_block(product);
  const bool one_depth = product.k <= largest.a.depth;
  const bool one_column = product.n <= largest.b.extent;
  std::vector<Block> blocks;
  for (std::int64_t row = 0; row < product.m; row += largest.a.extent) {
    for (std::int64_t column = 0; column < product.n; column += largest.b.extent) {
      for (std::int64_t depth = 0; depth < product.k; depth += largest.a.depth) {
        Block block = largest;
        block.first_row = row;
        block.first_column = column;
        block.first_depth = depth;
        block.a.extent = std::min(largest.a.extent, product.m - row);
        block.b.extent = std::min(largest.b.extent, product.n - column);
        block.a.depth = block.b.depth = std::min(largest.a.depth, product.k - depth);
        block.fills_a = column == 0 || !one_depth;
        block.fills_b = row == 0 || !one_depth || !one_column;
        blocks.push_back(block);
      }
    }
  }
  return blocks;
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
  gemm({.m = padded_rows,
        .n = padded_columns,
        .k = block.a.depth,
        .a = block.a.at(row_tile),
        .lda = block.a.ld(row_tile),
        .b = block.b.at(column_tile),
        .ldb = block.b.ld(column_tile),
        .c = out,
        .ldc = out_ld,
        .accumulate = adds || with_bias});
  if (at_edge) kernels.pack(edge, padded_columns, rows, columns, columns, c, product.n);
}

// Tasks that fill a block's panels.
class Fill {
 public:
  Fill(const Product& product, const Block& block)
      : product_(product),
        block_(block),
        a_bands_(block.fills_a ? num_bands(block.a, product.a) : 0),
        b_bands_(block.fills_b ? num_bands(block.b, product.b) : 0) {}

  std::int64_t num_tasks() const { return a_bands_ + b_bands_; }
  void run(std::int64_t task) const {
    if (task < a_bands_) {
      fill_band(block_.a, kernels(), product_.a, block_.first_row, block_.first_depth, task);
    } else {
      fill_band(block_.b, kernels(), product_.b, block_.first_column, block_.first_depth, task - a_bands_);
    }
  }

 private:
  const Product& product_;
  const Block& block_;
  std::int64_t a_bands_, b_bands_;
};

// Tasks that multiply a block's tiles.
class Multiplication {
 public:
  Multiplication(const Product& product, const Block& block) : product_(product), block_(block) {}

  std::int64_t num_tasks() const { return block_.a.num_tiles() * block_.b.num_tiles(); }
  void run(std::int64_t task) const {
    const std::int64_t columns = block_.b.num_tiles();
    multiply_tile(product_, block_, kernels(), task / columns, task % columns);
  }

 private:
  const Product& product_;
  const Block& block_;
};

std::size_t bytes_of(const Panels& panels) {
  return static_cast<std::size_t>(panels.num_elements()) * sizeof(float);
}

// Buffers for the panels of A and of B: two, where they are filled again while those of the block before are read.
struct NumBuffers {
  std::int64_t a, b;
};
NumBuffers num_buffers(const Product& product) {
  const bool one_depth = product.k <= kBlockDepth;
  return {.a = one_depth && product.m <= kBlockExtent ? 1 : 2, .b = one_depth && product.n <= kBlockExtent ? 1 : 2};
}

// Memory for one operand's panels, which blocks take in turn where they fill them.
std::vector<Buffer> place(std::vector<Block>& blocks, Panels Block::*panels, bool Block::*fills, std::int64_t num,
                          StreamView stream, Allocator& allocator) {
  std::vector<Buffer> buffers(static_cast<std::size_t>(num));
  for (Buffer& buffer : buffers) {
    buffer = allocator.allocate(bytes_of(blocks.front().*panels), MemoryCategory::kWorkspace, stream);
  }
  std::size_t turn = 0;
  for (Block& block : blocks) {
    if (&block != &blocks.front() && block.*fills) turn = (turn + 1) % buffers.size();
    (block.*panels).data = buffers[turn].as<float>();
  }
  return buffers;
}

}  // namespace

void multiply(StreamView stream, const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  require(product.k > 0, "a product has terms");
  CpuDevice& device = cpu_device(stream);
  std::vector<Block> blocks = blocks_of(product);
  const NumBuffers num = num_buffers(product);
  const auto a_panels = place(blocks, &Block::a, &Block::fills_a, num.a, stream, device.allocator());
  const auto b_panels = place(blocks, &Block::b, &Block::fills_b, num.b, stream, device.allocator());

  const bool serial = product.m * product.n * product.k <= kSerialWork;
  const auto run = [&](std::int64_t num_tasks, const std::function<void(std::int64_t)>& task) {
    if (serial) {
      for (std::int64_t i = 0; i < num_tasks; ++i) task(i);
    } else {
      device.pool().parallel_for(num_tasks, task);
    }
  };
  const Fill first(product, blocks.front());
  run(first.num_tasks(), [&](std::int64_t task) { first.run(task); });
  for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
    // Tiles first: bands are small, and let all threads end together.
    const Multiplication multiplication(product, blocks[i]);
    const Fill next(product, blocks[i + 1]);
    const std::int64_t tiles = multiplication.num_tasks();
    run(tiles + next.num_tasks(),
        [&](std::int64_t task) { task < tiles ? multiplication.run(task) : next.run(task - tiles); });
  }
  const Multiplication last(product, blocks.back());
  run(last.num_tasks(), [&](std::int64_t task) { last.run(task); });
}

std::int64_t product_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Product product{.m = m, .n = n, .k = k};
  const Block block = largest_block(product);
  const NumBuffers num = num_buffers(product);
  return num.a * static_cast<std::int64_t>(bytes_of(block.a)) + num.b * static_cast<std::int64_t>(bytes_of(block.b));
}

}  // namespace tessera::ops::cpu
