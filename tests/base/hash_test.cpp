#include "runtime/base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include <set>
#include <vector>

namespace tessera {
namespace {

// The published XXH64 of the empty input and of "abc" with seed 0.
TEST(Hash, OfBytesIsXxh64) {
  EXPECT_EQ(hash_bytes(nullptr, 0), 0xef46db3751d8e999ULL);
  EXPECT_EQ(hash_string(""), 0xef46db3751d8e999ULL);
  EXPECT_EQ(hash_string("abc"), 0x44bc2cf5ad770999ULL);
  EXPECT_NE(hash_string("abc", 1), hash_string("abc"));
}

TEST(Hash, PrintsSixteenDigits) {
  EXPECT_EQ(hex64(0), "0000000000000000");
  EXPECT_EQ(hex64(0xabcULL), "0000000000000abc");
  EXPECT_EQ(hex64(~0ULL), "ffffffffffffffff");
}

// SplitMix64 seeded with 0 gives 0xe220a8397b1dcdaf first: the finaliser of the golden gamma.
TEST(Hash, MixIsTheFinaliserOfSplitMix) {
  static_assert(mix64(0x9e3779b97f4a7c15ULL) == 0xe220a8397b1dcdafULL);
  static_assert(mix64(0) == 0);
}

std::vector<float> ramp(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = 0.5F + static_cast<float>(i);
  return values;
}

TEST(StateHash, PartsInAnyCutAndOrderAddUpToTheWhole) {
  const std::vector<float> values = ramp(1001);
  const std::uint64_t name = hash_string("blocks.0.attention.qkv.weight");
  const std::uint64_t whole = state_hash_part(name, 10, values.data(), values.size());
  for (const std::size_t step : {1UL, 3UL, 64UL, 1000UL}) {
    std::uint64_t sum = 0;
    for (std::size_t end = values.size(); end > 0;) {  // from the back: order is of no matter
      const std::size_t n = std::min(step, end);
      end -= n;
      sum += state_hash_part(name, 10 + end, values.data() + end, n);
    }
    EXPECT_EQ(sum, whole);
  }
  EXPECT_EQ(state_hash_part(name, 10, values.data(), 0), 0U);
}

TEST(StateHash, SeesNamePlaceAndEveryBit) {
  const std::vector<float> values = ramp(64);
  const std::uint64_t name = hash_string("embedding.token.weight");
  std::set<std::uint64_t> seen = {state_hash_part(name, 0, values.data(), values.size())};
  seen.insert(state_hash_part(hash_string("embedding.position.weight"), 0, values.data(), values.size()));
  seen.insert(state_hash_part(name, 1, values.data(), values.size()));
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    std::vector<float> changed = values;
    changed[17] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(changed[17]) ^ (1U << bit));
    seen.insert(state_hash_part(name, 0, changed.data(), changed.size()));
  }
  std::vector<float> swapped = values;
  std::swap(swapped[3], swapped[4]);
  seen.insert(state_hash_part(name, 0, swapped.data(), swapped.size()));
  EXPECT_EQ(seen.size(), 36U);
}

TEST(StateHash, TellsZerosAndNansApartByTheirBits) {
  const std::uint64_t name = hash_string("w");
  const auto of = [&](std::uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    return state_hash_part(name, 0, &value, 1);
  };
  EXPECT_NE(of(0x00000000), of(0x80000000));
  EXPECT_NE(of(0x7fc00000), of(0x7fc00001));
  EXPECT_NE(of(0x00000001), of(0x00000000));  // a denormal is its bits, too
}

// Pins the definition: the sum over elements of mix64(mix64(name + golden gamma) + (index in the upper half, bits
// below)).
TEST(StateHash, IsTheDocumentedMix) {
  const float values[2] = {1.0F, -2.0F};
  const std::uint64_t key = mix64(77 + 0x9e3779b97f4a7c15ULL);
  const std::uint64_t expected = mix64(key + 0x000000053f800000ULL) + mix64(key + 0x00000006c0000000ULL);
  EXPECT_EQ(state_hash_part(77, 5, values, 2), expected);
}

}  // namespace
}  // namespace tessera
