#include "runtime/base/rng.h"

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/math.h"

#include <cmath>

namespace tessera {
namespace {

std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

std::uint32_t low_half(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
std::uint32_t high_half(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

// The upper 53 bits as a multiple of 2^-53.
double unit(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high_half(product1) ^ counter[1] ^ key[0], low_half(product1), high_half(product0) ^ counter[3] ^ key[1],
               low_half(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// The purpose goes into the key and not into the counter, so that streams and indices keep all their 64 bits.
CounterRng::CounterRng(std::uint64_t seed, RandomPurpose purpose, std::uint64_t stream) : stream_(stream) {
  const std::uint64_t key = mix64(seed + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(purpose));
  key_ = {low_half(key), high_half(key)};
}

std::uint64_t CounterRng::bits64(std::uint64_t index) const {
  const auto block = philox4x32({low_half(index), high_half(index), low_half(stream_), high_half(stream_)}, key_);
  return join(block[0], block[1]);
}

double CounterRng::uniform(std::uint64_t index) const {
  return unit(bits64(index));
}

double CounterRng::normal(std::uint64_t index) const {
  const auto block = philox4x32({low_half(index), high_half(index), low_half(stream_), high_half(stream_)}, key_);
  const double radius = unit(join(block[0], block[1])) + 0x1p-53;  // in (0, 1]: its logarithm is finite
  const double turn = unit(join(block[2], block[3]));
  constexpr double kTwoPi = 0x1.921fb54442d18p+2;
  return std::sqrt(-2.0 * math::log(radius)) * math::cos(kTwoPi * turn);
}

std::uint64_t CounterRng::below(std::uint64_t index, std::uint64_t bound) const {
  require(bound > 0, "a random integer needs a positive bound");
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits64(index)) * bound >> 64);
}

}  // namespace tessera
