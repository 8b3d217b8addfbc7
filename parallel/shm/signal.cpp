#include "parallel/shm/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <ctime>

#include "runtime/base/clock.h"
#include "runtime/base/spin.h"

namespace tessera::shm {
namespace {

static_assert(std::endian::native == std::endian::little, "the futex word is the low half, at the counter's address");

// A sleeper looks again this often even if no wake-up comes, so that a lost poster only ever costs time.
constexpr std::int64_t kLookAgainNs = 100'000'000;

std::uint32_t* word_of(Signal& signal) {
  return reinterpret_cast<std::uint32_t*>(&signal.value);
}

// Not FUTEX_PRIVATE: the waiters are other processes.
void sleep_on(Signal& signal, std::uint32_t seen, std::int64_t ns) {
  const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
  syscall(SYS_futex, word_of(signal), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace

void post(Signal& signal, std::uint64_t value) {
  // Sequentially consistent on both sides: either the poster sees the waiter, or the waiter sees the value.
  signal.value.store(value, std::memory_order_seq_cst);
  if (signal.waiters.load(std::memory_order_seq_cst) > 0) {
    syscall(SYS_futex, word_of(signal), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool await(Signal& signal, std::uint64_t target, double seconds) {
  const auto reached = [&] { return signal.value.load(std::memory_order_acquire) >= target; };
  if (spin_until(reached)) return true;
  const std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
  while (true) {
    signal.waiters.fetch_add(1, std::memory_order_seq_cst);
    const std::uint64_t seen = signal.value.load(std::memory_order_seq_cst);
    const std::int64_t left = deadline - monotonic_ns();
    if (seen < target && left > 0) sleep_on(signal, static_cast<std::uint32_t>(seen), std::min(left, kLookAgainNs));
    signal.waiters.fetch_sub(1, std::memory_order_seq_cst);
    if (reached()) return true;
    if (monotonic_ns() >= deadline) return false;
  }
}

}  // namespace tessera::shm
