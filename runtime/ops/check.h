// The first lines of every operator: operands are what its header says. What fails here is a mistake of the program,
// not of the user: InternalError.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/device/stream.h"
#include "runtime/device/tensor_view.h"

namespace tessera::ops {

// A dense tensor as a matrix: all axes but the last are rows.
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  friend bool operator==(const MatrixShape&, const MatrixShape&) = default;
};
MatrixShape matrix_shape(const Shape& shape);

// The tensor is there (or empty by its shape), of this dtype and, seen as a matrix, of this shape.
void check_matrix(std::string_view op, std::string_view name, const ConstTensorView& tensor, MatrixShape expected,
                  DType dtype = DType::kFloat32);
// The same for any shape with this number of elements.
void check_elements(std::string_view op, std::string_view name, const ConstTensorView& tensor, std::int64_t expected,
                    DType dtype = DType::kFloat32);
// Like check_elements, but the tensor may be left out.
void check_optional(std::string_view op, std::string_view name, const ConstTensorView& tensor, std::int64_t expected,
                    DType dtype = DType::kFloat32);

// The operator has kernels for the stream's device.
void check_cpu(std::string_view op, StreamView stream);

}  // namespace tessera::ops
