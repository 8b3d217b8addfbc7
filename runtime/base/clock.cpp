#include "runtime/base/clock.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/hash.h"

namespace tessera {

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

double monotonic_seconds() {
  return static_cast<double>(monotonic_ns()) * 1e-9;
}

std::uint64_t clock_domain() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  if (!(file >> boot_id)) return 0;
  // A time namespace shifts the clock. A kernel without them has no such link, and no shift.
  std::error_code ignored;
  const std::string time_namespace = std::filesystem::read_symlink("/proc/self/ns/time", ignored).string();
  return hash_string(boot_id + " " + time_namespace);
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
