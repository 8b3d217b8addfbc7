// A 64-bit counter in shared memory that one process raises and others wait for.
//
// Waiting: a short poll, then a futex on the low half of the counter. The waiter count lets the common case (nobody
// sleeps) post without a system call. A waiter that is killed leaves its count behind; all that costs is needless
// wake-ups.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::shm {

struct Signal {
  std::atomic<std::uint64_t> value;
  std::atomic<std::uint32_t> waiters;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would live in one process only");
static_assert(sizeof(Signal) == 16);

// Everything written before is visible to whoever sees the value.
void post(Signal& signal, std::uint64_t value);

// Waits until the value is at least `target`; false when `seconds` have passed.
bool await(Signal& signal, std::uint64_t target, double seconds);

}  // namespace tessera::shm
