// The float formats that weights are published in, as fp32: exactly, since each is a part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

enum class FloatFormat : std::uint8_t { kF32, kF16, kBf16 };

constexpr std::size_t float_bytes(FloatFormat format) {
  return format == FloatFormat::kF32 ? 4 : 2;
}
// False for another word of a safetensors header.
bool parse_float_format(std::string_view dtype, FloatFormat& format);

float f16_to_float(std::uint16_t bits);
float bf16_to_float(std::uint16_t bits);
// bytes: out.size() values, little-endian.
void to_floats(FloatFormat format, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace tessera
