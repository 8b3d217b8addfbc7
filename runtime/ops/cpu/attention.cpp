#include "runtime/ops/attention.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "runtime/base/math.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/matmul_library.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

// Scores exist for this many queries and keys at a time, per task. Key blocks after a query block are never visited.
constexpr std::int64_t kQueryBlock = 64;
constexpr std::int64_t kKeyBlock = 256;
// Leading dimension of what has kKeyBlock columns: not a power of two, which oneDNN and the caches dislike.
constexpr std::int64_t kKeyLd = kKeyBlock + 16;

// Hands out pieces of one block of scratch; without a block it only counts.
class Carver {
 public:
  explicit Carver(float* base) : base_(base) {}
  float* take(std::int64_t elements) {
    float* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(elements, 16);
    return piece;
  }
  std::int64_t bytes() const { return used_ * static_cast<std::int64_t>(sizeof(float)); }

 private:
  float* base_;
  std::int64_t used_ = 0;
};

// The scratch of one task: one kv head of one sequence, and one query block at a time.
struct Scratch {
  Scratch(const AttentionShape& shape, bool backward, float* base) : carver(base) {
    const std::int64_t d = shape.head_dim;
    const std::int64_t key_blocks = ceil_div(shape.seq, kKeyBlock);
    k_transposed = carver.take(key_blocks * d * kKeyLd);
    q = carver.take(kQueryBlock * d);
    out = carver.take(kQueryBlock * d);
    scores = carver.take(kQueryBlock * kKeyLd);
    for (float** rows : {&row_max, &row_sum, &rescale}) *rows = carver.take(kQueryBlock);
    if (!backward) {
      v = carver.take(shape.seq * d);
      return;
    }
    v_transposed = carver.take(key_blocks * d * kKeyLd);
    for (float** matrix : {&k, &dk, &dv}) *matrix = carver.take(shape.seq * d);
    dout = carver.take(kQueryBlock * d);
    dscores = carver.take(kQueryBlock * kKeyLd);
    delta = carver.take(kQueryBlock);
  }

  Carver carver;
  float* k_transposed = nullptr;  // per key block [D, kKeyLd]
  float* v_transposed = nullptr;
  float* k = nullptr;  // [S, D]
  float* v = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  float* q = nullptr;    // [kQueryBlock, D], times 1 / sqrt(D)
  float* out = nullptr;  // [kQueryBlock, D]: o, or dq
  float* dout = nullptr;
  float* scores = nullptr;  // [kQueryBlock, kKeyLd]
  float* dscores = nullptr;
  float* row_max = nullptr;  // [kQueryBlock]
  float* row_sum = nullptr;
  float* rescale = nullptr;
  float* delta = nullptr;
};

struct Head {
  const AttentionShape& shape;
  const Kernels& kernels;
  std::int64_t batch;
  std::int64_t kv_head;

  std::int64_t group() const { return shape.query_heads / shape.kv_heads; }
  std::int64_t query_ld() const { return shape.query_heads * shape.head_dim; }
  std::int64_t key_ld() const { return shape.kv_heads * shape.head_dim; }
  std::int64_t query_offset(std::int64_t head, std::int64_t position) const {
    return (batch * shape.seq + position) * query_ld() + head * shape.head_dim;
  }
  std::int64_t key_offset(std::int64_t position) const {
    return (batch * shape.seq + position) * key_ld() + kv_head * shape.head_dim;
  }
  std::int64_t row_offset(std::int64_t head) const { return (batch * shape.query_heads + head) * shape.seq; }
  float scale() const { return static_cast<float>(1.0 / root()); }

  void pack_keys(const float* keys, float* packed) const {
    kernels.pack(keys + key_offset(0), key_ld(), shape.seq, shape.head_dim, shape.head_dim, packed, shape.head_dim);
  }
  void pack_keys_transposed(const float* keys, float* packed) const {
    for (std::int64_t first = 0; first < shape.seq; first += kKeyBlock) {
      const std::int64_t count = std::min(kKeyBlock, shape.seq - first);
      kernels.pack_transposed(keys + key_offset(first), key_ld(), count, shape.head_dim, count,
                              packed + first / kKeyBlock * shape.head_dim * kKeyLd, kKeyLd);
    }
  }
  void pack_queries(const float* queries, std::int64_t head, std::int64_t first, std::int64_t rows, float factor,
                    float* packed) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels.scale(queries + query_offset(head, first + r), factor, packed + r * shape.head_dim, shape.head_dim);
    }
  }

 private:
  double root() const {
    // Correctly rounded everywhere, unlike what a math library may do with a power.
    return __builtin_sqrt(static_cast<double>(shape.head_dim));
  }
};

// f(first, count) over the key blocks that queries [first_query, first_query + rows) may look at.
template <typename F>
void for_key_blocks(std::int64_t first_query, std::int64_t rows, F f) {
  const std::int64_t visible = first_query + rows;
  for (std::int64_t first = 0; first < visible; first += kKeyBlock) f(first, std::min(kKeyBlock, visible - first));
}

// out[rows, keys] = left[rows, D] · (packed key block)
void multiply_by_block(const AttentionShape& shape, const float* left, std::int64_t rows, const float* packed,
                       std::int64_t first_key, std::int64_t keys, float* out) {
  gemm({.m = rows,
        .n = keys,
        .k = shape.head_dim,
        .a = left,
        .lda = shape.head_dim,
        .b = packed + first_key / kKeyBlock * shape.head_dim * kKeyLd,
        .ldb = kKeyLd,
        .c = out,
        .ldc = kKeyLd});
}

void forward_block(const Head& head, const Scratch& s, const AttentionForward& args, std::int64_t query_head,
                   std::int64_t first, std::int64_t rows) {
  const std::int64_t d = head.shape.head_dim;
  head.pack_queries(args.q.as<float>(), query_head, first, rows, head.scale(), s.q);
  std::fill(s.row_max, s.row_max + rows, -std::numeric_limits<float>::infinity());
  std::fill(s.row_sum, s.row_sum + rows, 0.0F);
  for_key_blocks(first, rows, [&](std::int64_t first_key, std::int64_t keys) {
    multiply_by_block(head.shape, s.q, rows, s.k_transposed, first_key, keys, s.scores);
    head.kernels.softmax_block({.scores = s.scores,
                                .ld = kKeyLd,
                                .rows = rows,
                                .keys = keys,
                                .first_query = first,
                                .first_key = first_key,
                                .row_max = s.row_max,
                                .row_sum = s.row_sum,
                                .rescale = s.rescale});
    if (first_key > 0) {
      for (std::int64_t r = 0; r < rows; ++r) head.kernels.scale(s.out + r * d, s.rescale[r], s.out + r * d, d);
    }
    gemm({.m = rows,
          .n = d,
          .k = keys,
          .a = s.scores,
          .lda = kKeyLd,
          .b = s.v + first_key * d,
          .ldb = d,
          .c = s.out,
          .ldc = d,
          .accumulate = first_key > 0});
  });
  for (std::int64_t r = 0; r < rows; ++r) {
    head.kernels.scale(s.out + r * d, 1.0F / s.row_sum[r],
                       args.o.as<float>() + head.query_offset(query_head, first + r), d);
    if (!args.lse) continue;
    const double lse = static_cast<double>(s.row_max[r]) + math::log(static_cast<double>(s.row_sum[r]));
    args.lse.as<float>()[head.row_offset(query_head) + first + r] = static_cast<float>(lse);
  }
}

// With P = exp(scores - lse):  dV += Pᵀ dO;  dS = P (dO Vᵀ - delta), delta = rowsum(dO ∘ O);  dQ = dS K / √D;
// dK += dSᵀ Q / √D.
void backward_block(const Head& head, const Scratch& s, const AttentionBackward& args, std::int64_t query_head,
                    std::int64_t first, std::int64_t rows) {
  const std::int64_t d = head.shape.head_dim;
  head.pack_queries(args.q.as<float>(), query_head, first, rows, head.scale(), s.q);
  head.pack_queries(args.dout.as<float>(), query_head, first, rows, 1.0F, s.dout);
  for (std::int64_t r = 0; r < rows; ++r) {
    s.delta[r] = head.kernels.dot(s.dout + r * d, args.o.as<float>() + head.query_offset(query_head, first + r), d);
  }
  for_key_blocks(first, rows, [&](std::int64_t first_key, std::int64_t keys) {
    multiply_by_block(head.shape, s.q, rows, s.k_transposed, first_key, keys, s.scores);
    multiply_by_block(head.shape, s.dout, rows, s.v_transposed, first_key, keys, s.dscores);
    head.kernels.softmax_backward_block({.scores = s.scores,
                                         .dscores = s.dscores,
                                         .ld = kKeyLd,
                                         .rows = rows,
                                         .keys = keys,
                                         .first_query = first,
                                         .first_key = first_key,
                                         .lse = args.lse.as<float>() + head.row_offset(query_head) + first,
                                         .delta = s.delta});
    gemm({.m = rows,
          .n = d,
          .k = keys,
          .a = s.dscores,
          .lda = kKeyLd,
          .b = s.k + first_key * d,
          .ldb = d,
          .c = s.out,
          .ldc = d,
          .accumulate = first_key > 0});
    const auto add_over_queries = [&](const float* weights, const float* right, float* sum) {
      gemm({.m = keys,
            .n = d,
            .k = rows,
            .a = weights,
            .lda = kKeyLd,
            .transpose_a = true,
            .b = right,
            .ldb = d,
            .c = sum + first_key * d,
            .ldc = d,
            .accumulate = true});
    };
    add_over_queries(s.dscores, s.q, s.dk);
    add_over_queries(s.scores, s.dout, s.dv);
  });
  for (std::int64_t r = 0; r < rows; ++r) {
    head.kernels.scale(s.out + r * d, head.scale(), args.dq.as<float>() + head.query_offset(query_head, first + r), d);
  }
}

// How many tasks run at once, each with scratch of its own.
std::int64_t num_workers(const AttentionShape& shape, int num_threads) {
  return std::min<std::int64_t>(num_threads, shape.batch * shape.kv_heads);
}

// One task per kv head of each sequence: its query heads follow each other, so that sums over them have one order. Scratch is taken once for all,
// so that what the operator holds does not depend on how its tasks happen to overlap.
template <typename Task>
void for_heads(StreamView stream, const AttentionShape& shape, bool backward, Task task) {
  CpuDevice& device = cpu_device(stream);
  const auto bytes = static_cast<std::size_t>(Scratch(shape, backward, nullptr).carver.bytes());
  const std::int64_t workers = num_workers(shape, device.pool().num_threads());
  const Buffer buffer =
      device.allocator().allocate(static_cast<std::size_t>(workers) * bytes, MemoryCategory::kWorkspace, stream);
  std::atomic<std::int64_t> next = 0;
  device.pool().parallel_for(workers, [&](std::int64_t worker) {
    const Scratch scratch(shape, backward,
                          buffer.as<float>() + static_cast<std::size_t>(worker) * bytes / sizeof(float));
    for (std::int64_t index = next++; index < shape.batch * shape.kv_heads; index = next++) {
      task(Head{shape, kernels(), index / shape.kv_heads, index % shape.kv_heads}, scratch);
    }
  });
}

template <typename F>
void for_query_blocks(const Head& head, F f) {
  for (std::int64_t h = head.kv_head * head.group(); h < (head.kv_head + 1) * head.group(); ++h) {
    for (std::int64_t first = 0; first < head.shape.seq; first += kQueryBlock) {
      f(h, first, std::min(kQueryBlock, head.shape.seq - first));
    }
  }
}

}  // namespace

void attention_forward(StreamView stream, const AttentionForward& args) {
  stream.enqueue([stream, args] {
    for_heads(stream, args.shape, false, [&](const Head& head, const Scratch& s) {
      head.pack_keys_transposed(args.k.as<float>(), s.k_transposed);
      head.pack_keys(args.v.as<float>(), s.v);
      for_query_blocks(head, [&](std::int64_t query_head, std::int64_t first, std::int64_t rows) {
        forward_block(head, s, args, query_head, first, rows);
      });
    });
  });
}

void attention_backward(StreamView stream, const AttentionBackward& args) {
  stream.enqueue([stream, args] {
    for_heads(stream, args.shape, true, [&](const Head& head, const Scratch& s) {
      const std::int64_t d = args.shape.head_dim;
      const std::int64_t elements = args.shape.seq * d;
      head.pack_keys_transposed(args.k.as<float>(), s.k_transposed);
      head.pack_keys_transposed(args.v.as<float>(), s.v_transposed);
      head.pack_keys(args.k.as<float>(), s.k);
      std::fill(s.dk, s.dk + elements, 0.0F);
      std::fill(s.dv, s.dv + elements, 0.0F);
      for_query_blocks(head, [&](std::int64_t query_head, std::int64_t first, std::int64_t rows) {
        backward_block(head, s, args, query_head, first, rows);
      });
      const std::int64_t offset = head.key_offset(0);
      head.kernels.pack(s.dk, d, args.shape.seq, d, d, args.dk.as<float>() + offset, head.key_ld());
      head.kernels.pack(s.dv, d, args.shape.seq, d, d, args.dv.as<float>() + offset, head.key_ld());
    });
  });
}

void rope(StreamView stream, const Rope& args) {
  stream.enqueue([stream, args] {
    const std::int64_t half = args.head_dim / 2;
    const std::int64_t width = args.heads * args.head_dim;
    for_chunks(cpu_device(stream).pool(), args.batch * args.seq, rows_per_task(width),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t row = first; row < last; ++row) {
                   const std::int64_t table = row % args.seq * half;
                   for (std::int64_t h = 0; h < args.heads; ++h) {
                     kernels().rope_row(args.x.as<float>() + row * width + h * args.head_dim,
                                        args.cos_table.as<float>() + table, args.sin_table.as<float>() + table, half,
                                        args.inverse ? -1.0F : 1.0F);
                   }
                 }
               });
  });
}

}  // namespace tessera::ops::cpu

namespace tessera::ops {

std::int64_t attention_workspace_bytes(const AttentionShape& shape, int num_threads, bool backward) {
  return cpu::num_workers(shape, num_threads) * cpu::Scratch(shape, backward, nullptr).carver.bytes();
}

}  // namespace tessera::ops
