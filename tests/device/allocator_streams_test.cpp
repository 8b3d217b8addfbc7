// Blocks in the order of streams: who may have a released block, and when.
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/device/allocator_fixture.h"

namespace tessera::test {
namespace {

TEST_F(AllocatorTest, AnotherStreamGetsABlockOnlyAfterTheStreamOfTheBlockHasPassed) {
  std::promise<void> gate;
  Buffer block = memory.allocate(5 * kMiB, Category::kGathered, gather.view());
  void* const data = block.data();
  gather.view().enqueue([future = gate.get_future().share()] { future.wait(); });
  block.reset();
  EXPECT_EQ(memory.stats().total.allocated, 0);
  Buffer for_others = take(5 * kMiB);
  EXPECT_NE(for_others.data(), data);
  // Work of the same stream comes after what still uses the block.
  Buffer for_the_same = memory.allocate(2 * kMiB, Category::kGathered, gather.view());
  EXPECT_EQ(for_the_same.data(), data);
  gate.set_value();
  gather.view().synchronize();
  for_the_same.reset();
  for_others.reset();
  EXPECT_EQ(take(10 * kMiB).data(), data);  // both are free and one again
}

TEST_F(AllocatorTest, ARecordedUseKeepsTheBlockFromEverybodyUntilItHasPassed) {
  std::promise<void> gate;
  Buffer block = take(5 * kMiB);
  void* const data = block.data();
  reduce.view().enqueue([future = gate.get_future().share()] { future.wait(); });
  block.record_use(reduce.view());
  block.record_use(reduce.view());
  block.reset();
  const Buffer other = take(5 * kMiB);
  EXPECT_NE(other.data(), data);
  gate.set_value();
  reduce.view().synchronize();
  EXPECT_EQ(take(5 * kMiB).data(), data);
}

TEST_F(AllocatorTest, AUseCoversWhatItsStreamWasGivenUntilTheRelease) {
  std::promise<void> gate;
  Buffer block = take(5 * kMiB);
  void* const data = block.data();
  block.record_use(reduce.view());  // before the work that it announces
  reduce.view().enqueue([future = gate.get_future().share()] { future.wait(); });
  block.reset();
  const Buffer other = take(5 * kMiB);
  EXPECT_NE(other.data(), data);
  gate.set_value();
  reduce.view().synchronize();
}

TEST_F(AllocatorTest, ABufferMayOutliveTheStreamsThatUsedIt) {
  Buffer block;
  {
    const Stream brief = device.create_stream("brief", StreamMode::kQueue);
    block = memory.allocate(2 * kMiB, Category::kGathered, brief.view());
    const Stream other = device.create_stream("other", StreamMode::kQueue);
    block.record_use(other.view());
    other.view().enqueue([] { throw DataError("a failed use is over too"); });
  }
  void* const data = block.data();
  block.reset();
  EXPECT_EQ(take(2 * kMiB).data(), data);
}

TEST_F(AllocatorTest, ThreadsMayAllocateAndReleaseAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<std::uint32_t>(t));
      std::vector<Buffer> buffers(8);
      for (int i = 0; i < 500; ++i) {
        Buffer& buffer = buffers[random() % buffers.size()];
        buffer.reset();
        const StreamView stream = t % 2 == 0 ? compute.view() : gather.view();
        buffer = memory.allocate(64 + random() % (2 * kMiB), Category::kWorkspace, stream);
        if (random() % 3 == 0) buffer.record_use(reduce.view());
        buffer.as<int>()[0] = t;
        ASSERT_EQ(buffer.as<int>()[0], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.stats().total.allocated, 0);
}

}  // namespace
}  // namespace tessera::test
