#include "checkpoint/float_formats.h"

#include <bit>
#include <cstring>

#include "runtime/base/error.h"

namespace tessera {

bool parse_float_format(std::string_view dtype, FloatFormat& format) {
  if (dtype == "F32")
    format = FloatFormat::kF32;
  else if (dtype == "F16")
    format = FloatFormat::kF16;
  else if (dtype == "BF16")
    format = FloatFormat::kBf16;
  else
    return false;
  return true;
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16, exponent = bits >> 10 & 0x1fU,
                      mantissa = bits & 0x3ffU;
  if (exponent == 0) {  // a multiple of 2^-24, normal in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

void to_floats(FloatFormat format, std::span<const std::byte> bytes, std::span<float> out) {
  require(bytes.size() == out.size() * float_bytes(format), "as many bytes as the values have");
  if (out.empty()) return;
  if (format == FloatFormat::kF32) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
    out[i] = format == FloatFormat::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
  }
}

}  // namespace tessera
