// The parts of the shm backend that need one process only.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "parallel/host_map.h"
#include "parallel/shm/arena.h"
#include "parallel/shm/signal.h"
#include "runtime/base/error.h"

namespace tessera::shm {
namespace {

constexpr std::size_t kGranule = MemoryResource::kPageGranule;

// Bytes of memory behind the file, control part included.
std::int64_t held_bytes(const Arena& arena) {
  struct stat status {};
  fstat(arena.file().get(), &status);
  return static_cast<std::int64_t>(status.st_blocks) * 512;
}

TEST(ShmArena, MemoryIsThereWhenAllocatedAndGoneWhenGivenBack) {
  Arena arena(1);
  EXPECT_EQ(held_bytes(arena), 0);
  void* data = arena.allocate(3 * kGranule);
  EXPECT_EQ(held_bytes(arena), static_cast<std::int64_t>(3 * kGranule));
  arena.deallocate(static_cast<std::byte*>(data) + kGranule, kGranule);
  EXPECT_EQ(held_bytes(arena), static_cast<std::int64_t>(2 * kGranule));
  arena.deallocate(data, kGranule);
  arena.deallocate(static_cast<std::byte*>(data) + 2 * kGranule, kGranule);
  EXPECT_EQ(held_bytes(arena), 0);
}

TEST(ShmArena, MemoryIsZeroAlsoTheSecondTime) {
  Arena arena(1);
  auto* data = static_cast<unsigned char*>(arena.allocate(kGranule));
  data[0] = data[kGranule - 1] = 7;
  arena.deallocate(data, kGranule);
  auto* again = static_cast<unsigned char*>(arena.allocate(kGranule));
  EXPECT_EQ(again, data);
  EXPECT_EQ(again[0], 0);
  EXPECT_EQ(again[kGranule - 1], 0);
}

TEST(ShmArena, GrowsInPlaceWhereTheNextGranulesAreFree) {
  Arena arena(1);
  auto* first = static_cast<std::byte*>(arena.allocate(2 * kGranule));
  EXPECT_EQ(arena.extend(first + 2 * kGranule, kGranule), first + 2 * kGranule);
  auto* second = static_cast<std::byte*>(arena.allocate(2 * kGranule));
  EXPECT_EQ(second, first + 3 * kGranule);
  EXPECT_EQ(arena.extend(first + 3 * kGranule, kGranule), nullptr);
}

TEST(ShmArena, SmallSegmentsStayOutOfTheWayOfLargeOnes) {
  Arena arena(1);
  auto* large = static_cast<std::byte*>(arena.allocate(2 * kGranule));
  auto* small = static_cast<std::byte*>(arena.allocate(1));
  EXPECT_GT(small - large, static_cast<std::ptrdiff_t>(arena.size_bytes() / 2));
  EXPECT_NE(arena.extend(large + 2 * kGranule, kGranule), nullptr);
}

TEST(ShmArena, AddressesStartWhereHugePagesDo) {
  Arena arena(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.base()) % kGranule, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.allocate(1)) % kGranule, 0U);
}

TEST(ShmArena, KnowsItsOwnMemoryByOffset) {
  Arena arena(1);
  auto* data = static_cast<std::byte*>(arena.allocate(kGranule));
  const auto offset = arena.offset_of(data + 5, 10);
  ASSERT_TRUE(offset.has_value());
  EXPECT_EQ(arena.base() + *offset, data + 5);
  int elsewhere = 0;
  EXPECT_FALSE(arena.offset_of(&elsewhere, sizeof elsewhere).has_value());
  EXPECT_FALSE(arena.offset_of(arena.base() + arena.size_bytes() - 4, 8).has_value());
}

TEST(ShmArena, MoreThanThereIsIsADeviceError) {
  Arena arena(1);
  EXPECT_THROW(arena.allocate(arena.size_bytes()), DeviceError);
}

TEST(ShmArena, APeersMappingShowsTheSameMemory) {
  Arena arena(1);
  const Mapping peer(arena.file(), arena.size_bytes(), false);
  auto* data = static_cast<int*>(arena.allocate(kGranule));
  *data = 42;
  EXPECT_EQ(*reinterpret_cast<const int*>(peer.base() + *arena.offset_of(data, sizeof(int))), 42);
  arena.deallocate(data, kGranule);
  EXPECT_EQ(*reinterpret_cast<const int*>(peer.base() + *arena.offset_of(data, sizeof(int))), 0);
}

TEST(ShmSignal, AWaiterSeesWhatWasWrittenBefore) {
  Signal signal{};
  std::uint64_t data = 0;
  std::thread poster([&] {
    for (std::uint64_t i = 1; i <= 2000; ++i) {
      data = i * i;
      if (i == 1000) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long enough that the waiter sleeps
      post(signal, i);
    }
  });
  EXPECT_TRUE(await(signal, 2000, 60));
  EXPECT_EQ(data, 4'000'000U);
  poster.join();
}

TEST(ShmSignal, AWaitEndsWhenItsTimeIsUp) {
  Signal signal{};
  post(signal, 4);
  EXPECT_TRUE(await(signal, 4, 0));
  EXPECT_FALSE(await(signal, 5, 0.01));
  EXPECT_EQ(signal.waiters.load(), 0U);
}

TEST(HostMap, TellsGroupsOfOneHostFromOthers) {
  const HostMap hosts{{0, 0, 1, 1}, {"a", "b"}};
  const Placement canonical = Placement::canonical(4);
  EXPECT_TRUE(hosts.on_one_host({Axis::kTp, 0, {0, 1}}, canonical));
  EXPECT_FALSE(hosts.on_one_host({Axis::kDp, 0, {0, 2}}, canonical));
  const Placement crossed{{0, 2, 1, 3}};  // logical 0 and 2 on host a
  EXPECT_FALSE(hosts.on_one_host({Axis::kTp, 0, {0, 1}}, crossed));
  EXPECT_TRUE(hosts.on_one_host({Axis::kDp, 0, {0, 2}}, crossed));
  EXPECT_EQ(hosts.ranks_beside(3), (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace tessera::shm
