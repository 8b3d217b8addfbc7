#include "runtime/ops/matmul.h"

#include "runtime/ops/check.h"
#include "runtime/ops/cpu/column_sum.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/product.h"

namespace tessera::ops::cpu {

void linear_forward(StreamView stream, const LinearForward& args) {
  stream.enqueue([stream, args] {
    const MatrixShape x = matrix_shape(args.x.shape);
    const std::int64_t outputs = matrix_shape(args.w.shape).rows;
    multiply(stream, {.m = x.rows,
                      .n = outputs,
                      .k = x.columns,
                      .a = {args.x.as<float>(), x.columns, false},
                      .b = {args.w.as<float>(), x.columns, true},
                      .bias = args.bias.as<float>(),
                      .c = args.y.as<float>()});
  });
}

void linear_backward_input(StreamView stream, const LinearBackwardInput& args) {
  stream.enqueue([stream, args] {
    const MatrixShape dy = matrix_shape(args.dy.shape);
    const std::int64_t inputs = matrix_shape(args.w.shape).columns;
    multiply(stream, {.m = dy.rows,
                      .n = inputs,
                      .k = dy.columns,
                      .a = {args.dy.as<float>(), dy.columns, false},
                      .b = {args.w.as<float>(), inputs, false},
                      .c = args.dx.as<float>(),
                      .accumulate = args.accumulate});
  });
}

void linear_backward_weight(StreamView stream, const LinearBackwardWeight& args) {
  stream.enqueue([stream, args] {
    const MatrixShape dy = matrix_shape(args.dy.shape);
    const std::int64_t inputs = matrix_shape(args.x.shape).columns;
    multiply(stream, {.m = dy.columns,
                      .n = inputs,
                      .k = dy.rows,
                      .a = {args.dy.as<float>(), dy.columns, true},
                      .b = {args.x.as<float>(), inputs, false},
                      .c = args.dw.as<float>(),
                      .accumulate = args.accumulate});
    if (args.dbias) {
      column_sums(stream, args.dy.as<float>(), dy.rows, dy.columns, args.dbias.as<float>(), args.accumulate);
    }
  });
}

}  // namespace tessera::ops::cpu
