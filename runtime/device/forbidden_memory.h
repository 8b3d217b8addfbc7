// Under AddressSanitizer a free block of the allocator is as forbidden as freed heap memory, and a fresh one reads as
// NaN. Elsewhere these do nothing.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
extern "C" {
// The sanitizer's own interface, declared here because its header is a compiler's and not a library's.
void __asan_poison_memory_region(const volatile void* data, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
void __asan_unpoison_memory_region(const volatile void* data,
                                   std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
}
#endif

namespace tessera {

inline void forbid_memory([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(data, bytes);
#endif
}

inline void allow_memory([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

// Of a block that is handed out: only the caller's bytes are allowed, and none of them has a sensible value yet.
inline void allow_as_undefined([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  allow_memory(data, bytes);
  std::memset(data, 0xFF, bytes);
#endif
}

}  // namespace tessera
