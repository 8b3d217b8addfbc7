#include "runtime/ops/cross_entropy.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/cpu_ops.h"

namespace tessera::ops {

void cross_entropy(StreamView stream, const CrossEntropy& args) {
  constexpr const char* kOp = "cross_entropy";
  const MatrixShape shape = matrix_shape(args.logits.shape);
  check_matrix(kOp, "logits", args.logits, shape);
  check_elements(kOp, "targets", args.targets, shape.rows, DType::kInt32);
  check_elements(kOp, "losses", args.losses, shape.rows);
  require(shape.columns > 0, "cross_entropy: a vocabulary has entries");
  if (shape.rows == 0) return;
  check_cpu(kOp, stream);
  cpu::cross_entropy(stream, args);
}

void head_loss(StreamView stream, const HeadLoss& args) {
  constexpr const char* kOp = "head_loss";
  const MatrixShape x = matrix_shape(args.x.shape);
  const MatrixShape w = matrix_shape(args.w.shape);
  check_matrix(kOp, "x", args.x, x);
  check_matrix(kOp, "w", args.w, {w.rows, x.columns});
  check_elements(kOp, "targets", args.targets, x.rows, DType::kInt32);
  check_elements(kOp, "losses", args.losses, x.rows);
  if (args.with_gradient) {
    check_matrix(kOp, "dx", args.dx, x);
    check_matrix(kOp, "dw", args.dw, w);
    require(x.rows > 0, "head_loss: a gradient has rows");
  }
  require(w.rows > 0 && x.columns > 0, "head_loss: a product has terms");
  if (x.rows == 0) return;
  check_cpu(kOp, stream);
  cpu::head_loss(stream, args);
}

std::int64_t head_loss_workspace_bytes(std::int64_t rows, std::int64_t vocabulary) {
  return std::min(rows, kHeadChunkRows) * vocabulary * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace tessera::ops
