#include "runtime/ops/norm.h"

#include "runtime/base/error.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/column_sum.h"
#include "runtime/ops/cpu/cpu_ops.h"

namespace tessera::ops {

void norm_forward(StreamView stream, const NormForward& args) {
  constexpr const char* kOp = "norm_forward";
  const MatrixShape shape = matrix_shape(args.residual.shape);
  check_matrix(kOp, "residual", args.residual, shape);
  check_optional(kOp, "delta", args.delta, shape.rows * shape.columns);
  check_elements(kOp, "gain", args.gain, shape.columns);
  check_optional(kOp, "bias", args.bias, shape.columns);
  check_optional(kOp, "residual_out", args.residual_out, shape.rows * shape.columns);
  check_matrix(kOp, "y", args.y, shape);
  if (args.kind == NormKind::kLayerNorm) check_elements(kOp, "mean", args.mean, shape.rows);
  check_elements(kOp, "rstd", args.rstd, shape.rows);
  require(shape.rows == 0 || !args.delta || args.residual_out, "norm_forward: a sum with delta has a place to go");
  if (shape.rows == 0 || shape.columns == 0) return;
  check_cpu(kOp, stream);
  cpu::norm_forward(stream, args);
}

void norm_recompute(StreamView stream, const NormRecompute& args) {
  constexpr const char* kOp = "norm_recompute";
  const MatrixShape shape = matrix_shape(args.residual.shape);
  check_matrix(kOp, "residual", args.residual, shape);
  check_elements(kOp, "gain", args.gain, shape.columns);
  check_optional(kOp, "bias", args.bias, shape.columns);
  if (args.kind == NormKind::kLayerNorm) check_elements(kOp, "mean", args.mean, shape.rows);
  check_elements(kOp, "rstd", args.rstd, shape.rows);
  check_matrix(kOp, "y", args.y, shape);
  if (shape.rows == 0 || shape.columns == 0) return;
  check_cpu(kOp, stream);
  cpu::norm_recompute(stream, args);
}

void norm_backward(StreamView stream, const NormBackward& args) {
  constexpr const char* kOp = "norm_backward";
  const MatrixShape shape = matrix_shape(args.residual.shape);
  check_matrix(kOp, "dy", args.dy, shape);
  check_matrix(kOp, "residual", args.residual, shape);
  check_elements(kOp, "gain", args.gain, shape.columns);
  if (args.kind == NormKind::kLayerNorm) check_elements(kOp, "mean", args.mean, shape.rows);
  check_elements(kOp, "rstd", args.rstd, shape.rows);
  check_matrix(kOp, "dx", args.dx, shape);
  check_elements(kOp, "dgain", args.dgain, shape.columns);
  check_optional(kOp, "dbias", args.dbias, shape.columns);
  require(shape.rows > 0, "norm_backward: a gradient has rows");
  if (shape.columns == 0) return;
  check_cpu(kOp, stream);
  cpu::norm_backward(stream, args);
}

std::int64_t norm_backward_workspace_bytes(std::int64_t rows, std::int64_t features) {
  return cpu::column_sums_workspace_bytes(rows, 2 * features);  // gains and biases
}

}  // namespace tessera::ops
