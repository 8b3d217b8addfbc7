// How operators cut their work: on a fixed grid, never by the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "runtime/base/thread_pool.h"

namespace tessera::ops::cpu {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

// Elements per task of elementwise work: some tens of microseconds.
inline constexpr std::int64_t kElementChunk = 16384;

// task(first, last) over [0, n) in chunks of `chunk`.
inline void for_chunks(ThreadPool& pool, std::int64_t n, std::int64_t chunk,
                       const std::function<void(std::int64_t first, std::int64_t last)>& task) {
  pool.parallel_for(ceil_div(n, chunk), [&](std::int64_t i) { task(i * chunk, std::min(n, (i + 1) * chunk)); });
}

// Rows per task so that a task holds about kElementChunk elements. Only for work whose rows are independent.
constexpr std::int64_t rows_per_task(std::int64_t features) {
  return std::max<std::int64_t>(1, kElementChunk / std::max<std::int64_t>(1, features));
}

}  // namespace tessera::ops::cpu
