#include "runtime/device/cpu/mmap_resource.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::size_t kGranule = MemoryResource::kPageGranule;

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(MmapResource, MemoryIsZeroAndAlignedToHugePages) {
  MmapResource resource;
  for (const std::size_t bytes : {kGranule, 5 * kGranule, 20 * kGranule}) {
    auto* const data = static_cast<unsigned char*>(resource.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kGranule, 0U);
    for (std::size_t i = 0; i < bytes; i += 4096) ASSERT_EQ(data[i], 0);
    std::memset(data, 1, bytes);
    resource.deallocate(data, bytes);
  }
}

TEST(MmapResource, WhatComesBackAfterADeallocationIsZeroAgain) {
  MmapResource resource;
  void* const first = resource.allocate(4 * kGranule);
  std::memset(first, 7, 4 * kGranule);
  resource.deallocate(first, 4 * kGranule);
  auto* const second = static_cast<unsigned char*>(resource.allocate(4 * kGranule));
  EXPECT_EQ(second, first);
  EXPECT_EQ(second[0], 0);
  EXPECT_EQ(second[4 * kGranule - 1], 0);
}

TEST(MmapResource, DeallocatedPagesLeaveTheProcess) {
  MmapResource resource;
  constexpr std::size_t kBytes = 32 * kGranule;
  void* const data = resource.allocate(kBytes);
  std::memset(data, 1, kBytes);
  const std::size_t before = resident_bytes();
  resource.deallocate(data, kBytes);
  EXPECT_LT(resident_bytes() + kBytes / 2, before);
}

TEST(MmapResource, ARangeGrowsInPlaceUntilSomethingIsInTheWay) {
  MmapResource resource;
  auto* const first = static_cast<std::byte*>(resource.allocate(2 * kGranule));
  std::byte* const end = first + 2 * kGranule;
  EXPECT_EQ(resource.extend(end, 3 * kGranule), end);
  std::memset(first, 1, 5 * kGranule);
  auto* const next = static_cast<std::byte*>(resource.allocate(2 * kGranule));
  EXPECT_EQ(next, end + 3 * kGranule);
  EXPECT_EQ(resource.extend(end + 3 * kGranule, kGranule), nullptr);
  // A part in the middle goes back and is found again.
  resource.deallocate(first + kGranule, 2 * kGranule);
  EXPECT_EQ(resource.extend(first + kGranule, 3 * kGranule), nullptr);
  EXPECT_EQ(resource.extend(first + kGranule, 2 * kGranule), first + kGranule);
}

TEST(MmapResource, SmallRangesStayOutOfTheWayOfLargeOnes) {
  MmapResource resource;
  auto* const large = static_cast<std::byte*>(resource.allocate(4 * kGranule));
  auto* const small = static_cast<std::byte*>(resource.allocate(kGranule));
  EXPECT_GT(small, large + 1024 * kGranule);
  EXPECT_NE(resource.extend(large + 4 * kGranule, 4 * kGranule), nullptr);
}

TEST(MmapResource, MoreThanTheAddressSpaceIsADeviceError) {
  MmapResource resource;
  EXPECT_THROW(resource.allocate(std::size_t{1} << 50), DeviceError);
  EXPECT_NE(resource.allocate(kGranule), nullptr);
}

}  // namespace
}  // namespace tessera
