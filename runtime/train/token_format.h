// The numbers of the llm.c token format: 256 little-endian i32 of header (magic, version, number of tokens, zeros),
// then the tokens.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tessera {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they are");

inline constexpr std::int32_t kTokenMagicU16 = 20240520, kTokenVersionU16 = 1;
inline constexpr std::int32_t kTokenMagicU32 = 20240801, kTokenVersionU32 = 7;
inline constexpr std::size_t kTokenHeaderWords = 256;
inline constexpr std::size_t kTokenHeaderBytes = kTokenHeaderWords * sizeof(std::int32_t);

}  // namespace tessera
