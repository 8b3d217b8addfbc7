#include "runtime/base/dtype.h"

#include "runtime/base/error.h"

namespace tessera {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32: return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
    case DType::kUInt16: return 2;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64: return 8;
    case DType::kUInt8: return 1;
  }
  throw InternalError("internal: size of an unknown dtype");
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "fp32";
    case DType::kBFloat16: return "bf16";
    case DType::kFloat16: return "fp16";
    case DType::kFloat64: return "fp64";
    case DType::kUInt8: return "u8";
    case DType::kUInt16: return "u16";
    case DType::kInt32: return "i32";
    case DType::kUInt32: return "u32";
    case DType::kInt64: return "i64";
    case DType::kUInt64: return "u64";
  }
  throw InternalError("internal: name of an unknown dtype");
}

}  // namespace tessera
