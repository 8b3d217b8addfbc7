#include "runtime/ops/attention.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/math.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/cpu_ops.h"

namespace tessera::ops {
namespace {

void check_shape(const char* op, const AttentionShape& shape) {
  const bool positive = shape.query_heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0;
  if (!positive || shape.query_heads % shape.kv_heads != 0) {
    throw InternalError(
        fmt::format("{}: {} query heads on {} kv heads of {}", op, shape.query_heads, shape.kv_heads, shape.head_dim));
  }
}

MatrixShape query_matrix(const AttentionShape& shape) {
  return {shape.batch * shape.seq, shape.query_heads * shape.head_dim};
}
MatrixShape key_matrix(const AttentionShape& shape) {
  return {shape.batch * shape.seq, shape.kv_heads * shape.head_dim};
}

}  // namespace

void attention_forward(StreamView stream, const AttentionForward& args) {
  constexpr const char* kOp = "attention_forward";
  const AttentionShape& shape = args.shape;
  check_shape(kOp, shape);
  check_matrix(kOp, "q", args.q, query_matrix(shape));
  check_matrix(kOp, "k", args.k, key_matrix(shape));
  check_matrix(kOp, "v", args.v, key_matrix(shape));
  check_matrix(kOp, "o", args.o, query_matrix(shape));
  check_optional(kOp, "lse", args.lse, shape.batch * shape.query_heads * shape.seq);
  if (shape.batch * shape.seq == 0) return;
  check_cpu(kOp, stream);
  cpu::attention_forward(stream, args);
}

void attention_backward(StreamView stream, const AttentionBackward& args) {
  constexpr const char* kOp = "attention_backward";
  const AttentionShape& shape = args.shape;
  check_shape(kOp, shape);
  for (const auto& [name, tensor] : {std::pair{"q", args.q}, {"o", args.o}, {"dout", args.dout}}) {
    check_matrix(kOp, name, tensor, query_matrix(shape));
  }
  check_matrix(kOp, "k", args.k, key_matrix(shape));
  check_matrix(kOp, "v", args.v, key_matrix(shape));
  check_elements(kOp, "lse", args.lse, shape.batch * shape.query_heads * shape.seq);
  check_matrix(kOp, "dq", args.dq, query_matrix(shape));
  check_matrix(kOp, "dk", args.dk, key_matrix(shape));
  check_matrix(kOp, "dv", args.dv, key_matrix(shape));
  if (shape.batch * shape.seq == 0) return;
  check_cpu(kOp, stream);
  cpu::attention_backward(stream, args);
}

void rope(StreamView stream, const Rope& args) {
  constexpr const char* kOp = "rope";
  require(args.head_dim % 2 == 0, "rope: positions rotate pairs");
  check_matrix(kOp, "x", args.x, {args.batch * args.seq, args.heads * args.head_dim});
  check_matrix(kOp, "cos_table", args.cos_table, {args.seq, args.head_dim / 2});
  check_matrix(kOp, "sin_table", args.sin_table, {args.seq, args.head_dim / 2});
  if (args.x.num_elements() == 0) return;
  check_cpu(kOp, stream);
  cpu::rope(stream, args);
}

void make_rope_tables(std::int64_t seq, std::int64_t head_dim, const RopeFrequencies& options, float* cos_table,
                      float* sin_table) {
  const std::vector<double> frequencies = rope_frequencies(head_dim, options);
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = frequencies[static_cast<std::size_t>(i)];
    for (std::int64_t p = 0; p < seq; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos_table[p * half + i] = static_cast<float>(math::cos(angle));
      sin_table[p * half + i] = static_cast<float>(math::sin(angle));
    }
  }
}

}  // namespace tessera::ops
