// A device with its allocator and three streams, for the tests of the allocator.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include "runtime/device/allocator.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera::test {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
using Category = MemoryCategory;

class AllocatorTest : public ::testing::Test {
 protected:
  Buffer take(std::size_t bytes, Category category = Category::kWorkspace) {
    return memory.allocate(bytes, category, compute.view());
  }

  CpuDevice device;
  Stream compute = device.create_stream("compute", StreamMode::kCompute);
  Stream gather = device.create_stream("gather", StreamMode::kQueue);
  Stream reduce = device.create_stream("reduce", StreamMode::kQueue);
  Allocator& memory = device.allocator();
};

}  // namespace tessera::test
