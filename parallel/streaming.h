// Results written past the caches, by streaming stores. Ordinary stores first read every line that they then replace (a third of the
// traffic of a copy), and push out of the caches what is used before the result is. Where the processor has none: ordinary ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// Results of at least this many bytes are streamed; shorter ones are worth keeping in a cache.
inline constexpr std::uint64_t kStreamingBytes = std::uint64_t{512} << 10;

// memcpy.
void stream_copy(void* destination, const void* source, std::uint64_t bytes);

// destination[i] = a[i] + b[i]; destination may be a or b. A sum of two has one order only, so this is ops::tree_sum of two.
void stream_sum_of_two(float* destination, const float* a, const float* b, std::uint64_t count);

// Streaming stores are not ordered with the store that announces them to another thread: call this in between.
void stream_fence();

}  // namespace tessera
