// What the allocator reports. allocated: live bytes handed out (rounded up as handed out); reserved: bytes held from
// the device.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

enum class MemoryCategory : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kGathered,
  kWorkspace,
  kCommunication,
  kCheckpoint  // copies of the state that are being saved
};
inline constexpr int kNumMemoryCategories = 8;
// "parameters", "gradients", "optimizer", "activations", "gathered", "workspace", "communication",
// "checkpoint".
std::string_view name_of(MemoryCategory category);

struct MemoryCounts {
  std::int64_t allocated = 0;
  std::int64_t allocated_peak = 0;
};

struct MemoryStats {
  std::array<MemoryCounts, kNumMemoryCategories> by_category;  // each with its own peak
  MemoryCounts total;                                          // peak of the sum, not sum of the peaks
  std::int64_t reserved = 0;
  std::int64_t reserved_peak = 0;
  // What each category held at the moment total.allocated was at its peak: these add up to total.allocated_peak.
  std::array<std::int64_t, kNumMemoryCategories> at_peak{};
};

}  // namespace tessera
