#include "parallel/streaming.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {

#if defined(__x86_64__)

namespace {

constexpr std::size_t kLine = 64;
// The processor's own prefetching stops at the end of a page. Looking past the end of the source is allowed.
constexpr std::size_t kPrefetchBytes = 2048;

// Bytes to the next line.
std::size_t to_line(const void* at) {
  return (kLine - reinterpret_cast<std::uintptr_t>(at) % kLine) % kLine;
}

}  // namespace

void stream_copy(void* destination, const void* source, std::uint64_t bytes) {
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  std::uint64_t at = std::min<std::uint64_t>(bytes, to_line(to));
  std::memcpy(to, from, at);
  for (; at + kLine <= bytes; at += kLine) {
    _mm_prefetch(from + at + kPrefetchBytes, _MM_HINT_NTA);
    const auto* line = reinterpret_cast<const __m128i*>(from + at);
    const __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
    const __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

void stream_sum_of_two(float* destination, const float* a, const float* b, std::uint64_t count) {
  constexpr std::uint64_t kFloats = kLine / sizeof(float);
  std::uint64_t i = 0;
  for (const std::uint64_t head = std::min<std::uint64_t>(count, to_line(destination) / sizeof(float)); i < head; ++i) {
    destination[i] = a[i] + b[i];
  }
  for (; i + kFloats <= count; i += kFloats) {
    _mm_prefetch(reinterpret_cast<const char*>(a + i) + kPrefetchBytes, _MM_HINT_NTA);
    _mm_prefetch(reinterpret_cast<const char*>(b + i) + kPrefetchBytes, _MM_HINT_NTA);
    for (std::uint64_t k = i; k < i + kFloats; k += 4) {
      _mm_stream_ps(destination + k, _mm_add_ps(_mm_loadu_ps(a + k), _mm_loadu_ps(b + k)));
    }
  }
  for (; i < count; ++i) destination[i] = a[i] + b[i];
}

void stream_fence() {
  _mm_sfence();
}

#else

void stream_copy(void* destination, const void* source, std::uint64_t bytes) {
  std::memcpy(destination, source, bytes);
}
void stream_sum_of_two(float* destination, const float* a, const float* b, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) destination[i] = a[i] + b[i];
}
void stream_fence() {}

#endif

}  // namespace tessera
