// Element types of tensors, files and collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

enum class DType : std::uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat64,
  kUInt8,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64
};

// Bytes of one element.
std::size_t size_of(DType dtype);
// "fp32", "bf16", "fp16", "fp64", "u8", "u16", "i32", "u32", "i64", "u64".
std::string_view name_of(DType dtype);

}  // namespace tessera
