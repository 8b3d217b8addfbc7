// Sixteen logical fp32 lanes on whatever the instruction set has: 4 x 4, 2 x 8 or 1 x 16. Included once by each
// kernels_*.cpp, inside the namespace of its instruction set, so that no two variants share a symbol.
//
// TESSERA_ISA: the namespace; TESSERA_NATIVE_BYTES: bytes of one native vector (16, 32 or 64).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if !defined(TESSERA_ISA) || !defined(TESSERA_NATIVE_BYTES)
#error "lanes.h is for kernels_*.cpp"
#endif

#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera::ops::cpu::TESSERA_ISA {

constexpr int kLanes = 16;
constexpr int kNativeLanes = TESSERA_NATIVE_BYTES / 4;
constexpr int kParts = kLanes / kNativeLanes;

using Native = float __attribute__((vector_size(TESSERA_NATIVE_BYTES)));
using NativeInt = std::int32_t __attribute__((vector_size(TESSERA_NATIVE_BYTES)));
using NativeBits = std::uint32_t __attribute__((vector_size(TESSERA_NATIVE_BYTES)));

struct Vec {
  Native part[kParts];
};
struct IntVec {
  NativeInt part[kParts];
};

template <typename R, typename F>
TESSERA_INLINE R for_parts(F f) {
  R result;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) result.part[i] = f(i);
  return result;
}

TESSERA_INLINE Vec load(const float* p) {
  return for_parts<Vec>([&](int i) {
    Native v;
    __builtin_memcpy(&v, p + i * kNativeLanes, sizeof(v));
    return v;
  });
}

TESSERA_INLINE void store(float* p, Vec v) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) __builtin_memcpy(p + i * kNativeLanes, &v.part[i], sizeof(Native));
}

TESSERA_INLINE Vec broadcast(float x) {
  return for_parts<Vec>([&](int) { return x - Native{}; });  // x - 0 keeps the sign of zero
}

TESSERA_INLINE Vec operator+(Vec a, Vec b) {
  return for_parts<Vec>([&](int i) { return a.part[i] + b.part[i]; });
}
TESSERA_INLINE Vec operator-(Vec a, Vec b) {
  return for_parts<Vec>([&](int i) { return a.part[i] - b.part[i]; });
}
TESSERA_INLINE Vec operator*(Vec a, Vec b) {
  return for_parts<Vec>([&](int i) { return a.part[i] * b.part[i]; });
}
TESSERA_INLINE Vec operator/(Vec a, Vec b) {
  return for_parts<Vec>([&](int i) { return a.part[i] / b.part[i]; });
}
TESSERA_INLINE Vec operator-(Vec a) {
  return for_parts<Vec>([&](int i) { return -a.part[i]; });
}
TESSERA_INLINE Vec operator+(Vec a, float b) {
  return a + broadcast(b);
}
TESSERA_INLINE Vec operator-(Vec a, float b) {
  return a - broadcast(b);
}
TESSERA_INLINE Vec operator*(Vec a, float b) {
  return a * broadcast(b);
}
TESSERA_INLINE Vec operator+(float a, Vec b) {
  return broadcast(a) + b;
}
TESSERA_INLINE Vec operator-(float a, Vec b) {
  return broadcast(a) - b;
}
TESSERA_INLINE Vec operator*(float a, Vec b) {
  return broadcast(a) * b;
}
TESSERA_INLINE Vec operator/(float a, Vec b) {
  return broadcast(a) / b;
}

// All bits set where true.
TESSERA_INLINE IntVec less(Vec a, Vec b) {
  return for_parts<IntVec>([&](int i) { return a.part[i] < b.part[i]; });
}

// mask ? a : b.
TESSERA_INLINE Vec select(IntVec mask, Vec a, Vec b) {
  return for_parts<Vec>([&](int i) { return mask.part[i] ? a.part[i] : b.part[i]; });
}

// A NaN in v survives both.
TESSERA_INLINE Vec at_least(Vec v, float bound) {
  const Vec limit = broadcast(bound);
  return select(less(v, limit), limit, v);
}
TESSERA_INLINE Vec at_most(Vec v, float bound) {
  const Vec limit = broadcast(bound);
  return select(less(limit, v), limit, v);
}

TESSERA_INLINE Vec larger(Vec a, Vec b) {
  return select(less(a, b), b, a);
}

TESSERA_INLINE Vec absolute(Vec v) {
  return for_parts<Vec>([&](int i) { return (Native)((NativeInt)v.part[i] & 0x7fffffff); });
}

TESSERA_INLINE Vec square_root(Vec v) {
  return for_parts<Vec>([&](int i) {
#if TESSERA_NATIVE_BYTES == 64
    return (Native)_mm512_maskz_sqrt_ps(0xFFFF, (__m512)v.part[i]);
#elif TESSERA_NATIVE_BYTES == 32
    return (Native)_mm256_sqrt_ps((__m256)v.part[i]);
#elif defined(__x86_64__)
    return (Native)_mm_sqrt_ps((__m128)v.part[i]);
#else
    Native root;
    for (int lane = 0; lane < kNativeLanes; ++lane) root[lane] = __builtin_sqrtf(v.part[i][lane]);
    return root;
#endif
  });
}

// The first `count` lanes from p, the others `fill`. Nothing beyond p + count is read.
TESSERA_INLINE Vec load_partial(const float* p, std::int64_t count, float fill) {
  alignas(64) float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = fill;
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
}

TESSERA_INLINE void store_partial(float* p, std::int64_t count, Vec v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  for (std::int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// The one order in which lanes are added: halves onto halves.
TESSERA_INLINE float sum_lanes(Vec v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

TESSERA_INLINE float max_lanes(Vec v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  float result = lanes[0];
  for (int i = 1; i < kLanes; ++i) result = result < lanes[i] ? lanes[i] : result;
  return result;
}

// f(offset, count) over n elements in blocks of 16; count is 16 for all but the last.
template <typename F>
TESSERA_INLINE void for_blocks(std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, static_cast<std::int64_t>(kLanes));
  if (i < n) f(i, n - i);
}

TESSERA_INLINE Vec load_block(const float* p, std::int64_t count, float fill = 0.0F) {
  return count == kLanes ? load(p) : load_partial(p, count, fill);
}

TESSERA_INLINE void store_block(float* p, std::int64_t count, Vec v) {
  if (count == kLanes) {
    store(p, v);
  } else {
    store_partial(p, count, v);
  }
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
