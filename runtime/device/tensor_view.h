// A dense, row-major tensor that somebody else owns.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

namespace tessera {

struct TensorView {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::kFloat32;

  TensorView() = default;
  TensorView(void* d, Shape s, DType t = DType::kFloat32) : data(d), shape(s), dtype(t) {}
  std::int64_t num_elements() const { return shape.num_elements(); }
  explicit operator bool() const { return data != nullptr; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct ConstTensorView {
  const void* data = nullptr;
  Shape shape;
  DType dtype = DType::kFloat32;

  ConstTensorView() = default;
  ConstTensorView(const void* d, Shape s, DType t = DType::kFloat32) : data(d), shape(s), dtype(t) {}
  ConstTensorView(const TensorView& v) : data(v.data), shape(v.shape), dtype(v.dtype) {}  // NOLINT: a view of a view
  std::int64_t num_elements() const { return shape.num_elements(); }
  explicit operator bool() const { return data != nullptr; }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

}  // namespace tessera
