// Closed-form data and guarded buffers for the conformance suite.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "parallel/communicator.h"
#include "runtime/base/hash.h"
#include "runtime/device/allocator.h"

namespace tessera::testing {

// Where the operands of a call live. kMixed: shared on even ranks, private on odd ones.
enum class Placing { kPrivate, kShared, kMixed };

// `count` elements between guard bytes; checks on destruction that nobody wrote over the guards. Shared memory is that
// of the category kGathered, which prepare() has given to the communicator's resource.
template <typename T>
class Guarded {
 public:
  Guarded(Allocator& allocator, StreamView stream, int rank, Placing placing, std::size_t count) : count_(count) {
    const bool shared = placing == Placing::kShared || (placing == Placing::kMixed && rank % 2 == 0);
    const MemoryCategory category = shared ? MemoryCategory::kGathered : MemoryCategory::kWorkspace;
    buffer_ = allocator.allocate(count * sizeof(T) + 2 * kGuard, category, stream);
    raw_ = buffer_.as<unsigned char>();
    std::memset(raw_, kMark, kGuard);
    std::memset(raw_ + kGuard + count * sizeof(T), kMark, kGuard);
  }
  ~Guarded() {
    const auto intact = [](const unsigned char* guard) {
      return std::all_of(guard, guard + kGuard, [](unsigned char c) { return c == kMark; });
    };
    EXPECT_TRUE(intact(raw_)) << "somebody wrote before the buffer";
    EXPECT_TRUE(intact(raw_ + kGuard + count_ * sizeof(T))) << "somebody wrote past the buffer";
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return reinterpret_cast<T*>(raw_ + kGuard); }
  std::span<T> span() { return {data(), count_}; }
  T& operator[](std::size_t i) { return data()[i]; }
  std::size_t size() const { return count_; }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kMark = 0xA5;
  Buffer buffer_;
  unsigned char* raw_ = nullptr;
  std::size_t count_;
};

inline void prepare(Allocator& allocator, CommunicatorFactory& factory) {
  if (factory.shared_memory() != nullptr) allocator.set_resource(MemoryCategory::kGathered, *factory.shared_memory());
}

// A float of either sign between 2^-12 and 2^12 in magnitude that depends on (rank, i, salt) alone: sums of such values
// in fp32 depend on the order of the additions.
inline float ragged(int rank, std::size_t i, std::uint64_t salt = 0) {
  const std::uint64_t bits =
      mix64(static_cast<std::uint64_t>(rank + 1) * 0x9e3779b97f4a7c15ULL + i * 2654435761U + salt);
  const double mantissa = 1.0 + static_cast<double>(bits >> 40) / 16777216.0;
  const double scale = static_cast<double>(1U << (bits % 25)) / 4096.0;
  return static_cast<float>(((bits >> 30) & 1U) != 0 ? -mantissa * scale : mantissa * scale);
}

// The tree of the contract, by recursion over positions: neighbours are paired level by level and an odd last one
// passes up. That is the same as splitting n sources after the largest power of two below n.
inline float tree_of(std::span<const float> values) {
  if (values.size() == 1) return values[0];
  std::size_t half = 1;
  while (half * 2 < values.size()) half *= 2;
  return tree_of(values.first(half)) + tree_of(values.subspan(half));
}

inline bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace tessera::testing
