// Counter-based random numbers: every value is a function of (seed, purpose, stream, index), never of who asks first.
// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

enum class RandomPurpose : std::uint32_t { kInit = 1, kShuffle = 2, kDropout = 3, kSample = 4, kTest = 5, kBench = 6 };

// The raw block function: 128 bits of counter and 64 of key give 128 random bits.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// One family of numbers. stream separates e.g. parameters (hash of the name), steps or layers.
class CounterRng {
 public:
  CounterRng(std::uint64_t seed, RandomPurpose purpose, std::uint64_t stream);

  std::uint64_t bits64(std::uint64_t index) const;
  // Uniform in [0, 1): 53 bits.
  double uniform(std::uint64_t index) const;
  // Standard normal by Box-Muller in our own double formulas (math.h): identical on every machine.
  double normal(std::uint64_t index) const;
  // Uniform integer in [0, bound), bound > 0, without modulo bias beyond 2^-64.
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
};

}  // namespace tessera
