// An fp32 tensor that owns its memory.
#pragma once

#include <cstdint>

#include "runtime/device/allocator.h"
#include "runtime/device/device.h"
#include "runtime/device/tensor_view.h"

namespace tessera {

// Move-only; empty when default-constructed, moved from or reset. Contents are undefined at first.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  DeviceTensor(StreamView stream, MemoryCategory category, Shape shape)
      : buffer_(stream.device().allocator().allocate(bytes_of(shape), category, stream)), shape_(shape) {}

  TensorView view() const { return buffer_ ? TensorView(buffer_.data(), shape_) : TensorView(); }
  operator TensorView() const { return view(); }       // NOLINT: operators take views
  operator ConstTensorView() const { return view(); }  // NOLINT
  explicit operator bool() const { return static_cast<bool>(buffer_); }
  void reset() { buffer_.reset(); }

  // What a tensor of this shape holds: the allocator hands out multiples of 64 bytes.
  static std::int64_t allocated_bytes(const Shape& shape) {
    return (static_cast<std::int64_t>(bytes_of(shape)) + 63) / 64 * 64;
  }

 private:
  static std::size_t bytes_of(const Shape& shape) {
    return static_cast<std::size_t>(shape.num_elements()) * sizeof(float);
  }

  Buffer buffer_;
  Shape shape_;
};

}  // namespace tessera
