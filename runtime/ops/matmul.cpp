#include "runtime/ops/matmul.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/column_sum.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/product.h"

namespace tessera::ops {

void linear_forward(StreamView stream, const LinearForward& args) {
  constexpr const char* kOp = "linear_forward";
  const MatrixShape x = matrix_shape(args.x.shape);
  const MatrixShape w = matrix_shape(args.w.shape);
  check_matrix(kOp, "x", args.x, {x.rows, w.columns});
  check_matrix(kOp, "w", args.w, w);
  check_matrix(kOp, "y", args.y, {x.rows, w.rows});
  check_optional(kOp, "bias", args.bias, w.rows);
  require(w.columns > 0, "linear_forward: a product has terms");
  if (x.rows == 0 || w.rows == 0) return;
  check_cpu(kOp, stream);
  cpu::linear_forward(stream, args);
}

void linear_backward_input(StreamView stream, const LinearBackwardInput& args) {
  constexpr const char* kOp = "linear_backward_input";
  const MatrixShape dy = matrix_shape(args.dy.shape);
  const MatrixShape w = matrix_shape(args.w.shape);
  check_matrix(kOp, "dy", args.dy, {dy.rows, w.rows});
  check_matrix(kOp, "w", args.w, w);
  check_matrix(kOp, "dx", args.dx, {dy.rows, w.columns});
  require(w.rows > 0, "linear_backward_input: a product has terms");
  if (dy.rows == 0 || w.columns == 0) return;
  check_cpu(kOp, stream);
  cpu::linear_backward_input(stream, args);
}

void linear_backward_weight(StreamView stream, const LinearBackwardWeight& args) {
  constexpr const char* kOp = "linear_backward_weight";
  const MatrixShape dy = matrix_shape(args.dy.shape);
  const MatrixShape x = matrix_shape(args.x.shape);
  check_matrix(kOp, "dy", args.dy, dy);
  check_matrix(kOp, "x", args.x, {dy.rows, x.columns});
  check_matrix(kOp, "dw", args.dw, {dy.columns, x.columns});
  check_optional(kOp, "dbias", args.dbias, dy.columns);
  require(dy.rows > 0, "linear_backward_weight: a product has terms");
  if (dy.columns == 0 || x.columns == 0) return;
  check_cpu(kOp, stream);
  cpu::linear_backward_weight(stream, args);
}

std::int64_t linear_workspace_bytes(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs) {
  return std::max({cpu::product_workspace_bytes(tokens, outputs, inputs),
                   cpu::product_workspace_bytes(tokens, inputs, outputs),
                   cpu::product_workspace_bytes(outputs, inputs, tokens)});
}

LinearWorkspace linear_workspace(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs, bool bias) {
  // The sums for dbias follow the product, whose scratch is free by then.
  return {.forward = cpu::product_workspace_bytes(tokens, outputs, inputs),
          .backward_input = cpu::product_workspace_bytes(tokens, inputs, outputs),
          .backward_weight = std::max(cpu::product_workspace_bytes(outputs, inputs, tokens),
                                      bias ? cpu::column_sums_workspace_bytes(tokens, outputs) : 0)};
}

}  // namespace tessera::ops
