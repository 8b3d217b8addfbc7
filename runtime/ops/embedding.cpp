#include "runtime/ops/embedding.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/cpu_ops.h"

namespace tessera::ops {
namespace {

// Tokens are [B, S]; a vector is one sequence.
MatrixShape check_tokens(const char* op, const ConstTensorView& tokens) {
  const MatrixShape shape = matrix_shape(tokens.shape);
  check_matrix(op, "tokens", tokens, shape, DType::kInt32);
  return shape;
}

void check_positions(const char* op, const char* name, const ConstTensorView& table, std::int64_t positions,
                     std::int64_t features) {
  if (!table) return;
  const MatrixShape shape = matrix_shape(table.shape);
  check_matrix(op, name, table, {shape.rows, features});
  if (shape.rows < positions) {
    throw InternalError(fmt::format("{}: {} has {} rows for {} positions", op, name, shape.rows, positions));
  }
}

}  // namespace

void embedding_forward(StreamView stream, const EmbeddingForward& args) {
  constexpr const char* kOp = "embedding_forward";
  const MatrixShape tokens = check_tokens(kOp, args.tokens);
  const MatrixShape table = matrix_shape(args.token_table.shape);
  check_matrix(kOp, "token_table", args.token_table, table);
  check_positions(kOp, "position_table", args.position_table, tokens.columns, table.columns);
  check_matrix(kOp, "y", args.y, {tokens.rows * tokens.columns, table.columns});
  if (tokens.rows * tokens.columns == 0) return;
  check_cpu(kOp, stream);
  cpu::embedding_forward(stream, args);
}

void embedding_backward(StreamView stream, const EmbeddingBackward& args) {
  constexpr const char* kOp = "embedding_backward";
  const MatrixShape tokens = check_tokens(kOp, args.tokens);
  const MatrixShape table = matrix_shape(args.dtoken_table.shape);
  check_matrix(kOp, "dtoken_table", args.dtoken_table, table);
  check_positions(kOp, "dposition_table", args.dposition_table, tokens.columns, table.columns);
  check_matrix(kOp, "dy", args.dy, {tokens.rows * tokens.columns, table.columns});
  check_cpu(kOp, stream);
  cpu::embedding_backward(stream, args);
}

}  // namespace tessera::ops
