// Monotonic time for durations, Unix time for records.
#pragma once

#include <cstdint>

namespace tessera {

// Nanoseconds of CLOCK_MONOTONIC: comparable between processes of one host.
std::int64_t monotonic_ns();
double monotonic_seconds();
// Seconds since the Unix epoch, with fraction.
double unix_seconds();

}  // namespace tessera
