#include "runtime/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cstring>

#include "runtime/base/avx2.h"

namespace tessera {

std::uint64_t hash_bytes(const void* data, std::size_t num_bytes, std::uint64_t seed) {
  return XXH64(data, num_bytes, seed);
}

std::uint64_t hash_string(std::string_view text, std::uint64_t seed) {
  return XXH64(text.data(), text.size(), seed);
}

std::string hex64(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

namespace {

// (index, bits) is one 64-bit word, distinct for every pair while a tensor has fewer than 2^32 elements; the name's key
// moves the word to a place of its own before the bijective mix.
[[gnu::always_inline]] inline std::uint64_t sum_of_mixes(std::uint64_t key, std::uint64_t first_index,
                                                         const float* values, std::size_t n) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof bits);
    sum += mix64(key + (std::rotl(first_index + i, 32) ^ bits));
  }
  return sum;
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::uint64_t sum_of_mixes_avx2(std::uint64_t key, std::uint64_t first_index,
                                                        const float* values, std::size_t n) {
  return sum_of_mixes(key, first_index, values, n);
}
#endif

}  // namespace

std::uint64_t state_hash_part(std::uint64_t name_hash, std::uint64_t first_index, const float* values, std::size_t n) {
  const std::uint64_t key = mix64(name_hash + 0x9e3779b97f4a7c15ULL);
#if defined(__x86_64__)
  if (has_avx2()) return sum_of_mixes_avx2(key, first_index, values, n);
#endif
  return sum_of_mixes(key, first_index, values, n);
}

}  // namespace tessera
