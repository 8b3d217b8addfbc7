// The memory that this host lets its processes have.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tessera {

// Bytes: the machine's memory, or less where a control group of this process (version 1 or 2, at any level) limits it; 0: unknown. root: where
// /proc and /sys are (tests have their own).
std::int64_t host_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace tessera
