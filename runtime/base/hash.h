// Hashes: XXH64 for bytes and names, and an integer mix for sums that must not depend on order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

std::uint64_t hash_bytes(const void* data, std::size_t num_bytes, std::uint64_t seed = 0);
std::uint64_t hash_string(std::string_view text, std::uint64_t seed = 0);

// A bijective avalanche of 64 bits (the finaliser of SplitMix64, Steele, Lea and Flood 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// 16 lower-case hex digits.
std::string hex64(std::uint64_t value);

// state_hash of n elements of one logical tensor: the sum modulo 2^64, over elements, of a mix of (name, logical index,
// bits). Sums of parts taken on different ranks add up to the sum of the whole: no gather, no order.
// name_hash: hash_string(name); first_index: logical index of bits[0]; bits: raw 32-bit patterns of fp32 values.
std::uint64_t state_hash_part(std::uint64_t name_hash, std::uint64_t first_index, const float* values, std::size_t n);

}  // namespace tessera
