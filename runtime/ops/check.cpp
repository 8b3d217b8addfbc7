#include "runtime/ops/check.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace tessera::ops {
namespace {

void check_common(std::string_view op, std::string_view name, const ConstTensorView& tensor, bool fits,
                  std::string expected, DType dtype) {
  if (tensor.dtype != dtype) {
    throw InternalError(fmt::format("{}: {} is {}, expected {}", op, name, name_of(tensor.dtype), name_of(dtype)));
  }
  if (!fits) throw InternalError(fmt::format("{}: {} is {}, expected {}", op, name, tensor.shape.str(), expected));
  if (!tensor && tensor.num_elements() != 0) throw InternalError(fmt::format("{}: {} has no data", op, name));
}

}  // namespace

MatrixShape matrix_shape(const Shape& shape) {
  if (shape.rank() == 0) return {1, 1};
  MatrixShape result{1, shape[shape.rank() - 1]};
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) result.rows *= shape[axis];
  return result;
}

void check_matrix(std::string_view op, std::string_view name, const ConstTensorView& tensor, MatrixShape expected,
                  DType dtype) {
  check_common(op, name, tensor, matrix_shape(tensor.shape) == expected,
               fmt::format("rows {} of {}", expected.rows, expected.columns), dtype);
}

void check_elements(std::string_view op, std::string_view name, const ConstTensorView& tensor, std::int64_t expected,
                    DType dtype) {
  check_common(op, name, tensor, tensor.num_elements() == expected, fmt::format("{} elements", expected), dtype);
}

void check_optional(std::string_view op, std::string_view name, const ConstTensorView& tensor, std::int64_t expected,
                    DType dtype) {
  if (tensor) check_elements(op, name, tensor, expected, dtype);
}

void check_cpu(std::string_view op, StreamView stream) {
  const DeviceKind kind = stream.device().kind();
  if (kind != DeviceKind::kCpu) throw InternalError(fmt::format("{}: no kernel for device {}", op, name_of(kind)));
}

}  // namespace tessera::ops
