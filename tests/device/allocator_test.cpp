#include "runtime/device/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

TEST(Allocator, CountsLiveBytesPerCategoryWithPeaks) {
  CpuDevice device;
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  Allocator& memory = device.allocator();
  Buffer weights = memory.allocate(1000, MemoryCategory::kParameters, compute.view());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weights.data()) % 64, 0U);
  std::memset(weights.data(), 1, weights.size_bytes());
  {
    const Buffer saved = memory.allocate(100, MemoryCategory::kActivations, compute.view());
    EXPECT_EQ(memory.stats().total.allocated, 1024 + 128);
  }
  const MemoryStats stats = memory.stats();
  EXPECT_EQ(stats.total.allocated, 1024);
  EXPECT_EQ(stats.total.allocated_peak, 1152);
  EXPECT_EQ(stats.at_peak[static_cast<std::size_t>(MemoryCategory::kParameters)], 1024);
  EXPECT_EQ(stats.at_peak[static_cast<std::size_t>(MemoryCategory::kActivations)], 128);
  weights.reset();
  memory.trim();
  EXPECT_EQ(memory.stats().reserved, 0);
}

}  // namespace
}  // namespace tessera
