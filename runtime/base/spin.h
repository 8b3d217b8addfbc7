// A short poll before a thread goes to sleep: it saves the cost of a wake-up where work follows work, and stays cheap
// where threads outnumber cores, because after the first microseconds every look yields the core to whoever wants it.
#pragma once

#include <sched.h>

#include <cstdint>

#include "runtime/base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {

inline void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline constexpr std::int64_t kDefaultSpinNs = 20'000;

// Polls ready() for at most about spin_ns; true as soon as it is.
template <typename Ready>
bool spin_until(Ready&& ready, std::int64_t spin_ns = kDefaultSpinNs) {
  if (ready()) return true;
  if (spin_ns <= 0) return false;
  constexpr int kPausedLooks = 40;  // one to two microseconds
  for (int look = 0; look < kPausedLooks; ++look) {
    pause_cpu();
    if (ready()) return true;
  }
  const std::int64_t deadline = monotonic_ns() + spin_ns;
  do {
    sched_yield();
    if (ready()) return true;
  } while (monotonic_ns() < deadline);
  return false;
}

}  // namespace tessera
