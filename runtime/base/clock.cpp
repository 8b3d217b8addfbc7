#include "runtime/base/clock.h"

#include <chrono>
#include <ctime>

namespace tessera {

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

double monotonic_seconds() {
  return static_cast<double>(monotonic_ns()) * 1e-9;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
