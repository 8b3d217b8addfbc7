// Monotonic time for durations, Unix time for records.
#pragma once

#include <cstdint>

namespace tessera {

// Nanoseconds of CLOCK_MONOTONIC: comparable between processes of one clock_domain().
std::int64_t monotonic_ns();
double monotonic_seconds();
// Processes for which this is equal, and not 0, read one CLOCK_MONOTONIC: those of one boot of one machine and of one time
// namespace. 0: unknown.
std::uint64_t clock_domain();
// Seconds since the Unix epoch, with fraction.
double unix_seconds();

}  // namespace tessera
