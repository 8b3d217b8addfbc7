#include "runtime/device/allocator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "tests/device/allocator_fixture.h"

namespace tessera::test {
namespace {

// Plain segments, as a shared arena or a GPU gives them; counts what is out.
class SegmentResource final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes) override {
    if (outstanding() + bytes > capacity) throw DeviceError("arena is full");
    void* const data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    out_[data] = bytes;
    return data;
  }
  void deallocate(void* data, std::size_t bytes) noexcept override {
    EXPECT_EQ(out_.at(data), bytes);
    out_.erase(data);
    std::free(data);
  }
  const char* name() const override { return "segments"; }

  std::size_t outstanding() const {
    std::size_t sum = 0;
    for (const auto& [data, bytes] : out_) sum += bytes;
    return sum;
  }
  std::size_t num_segments() const { return out_.size(); }

  std::size_t capacity = std::size_t{1} << 40;

 private:
  std::map<void*, std::size_t> out_;
};

TEST_F(AllocatorTest, BlocksAreAlignedApartAndWritable) {
  std::vector<Buffer> buffers;
  for (const std::size_t bytes : {1UL, 63UL, 64UL, 65UL, 1000UL, 4096UL, kMiB - 1, kMiB, 3 * kMiB + 5}) {
    buffers.push_back(take(bytes));
    EXPECT_EQ(buffers.back().size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 64, 0U);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i)
    std::memset(buffers[i].data(), static_cast<int>(i), buffers[i].size_bytes());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto bytes = buffers[i].span<unsigned char>();
    EXPECT_EQ(bytes.front(), i);
    EXPECT_EQ(bytes.back(), i);
  }
}

TEST_F(AllocatorTest, NoBytesGiveAnEmptyBuffer) {
  Buffer nothing = take(0);
  EXPECT_FALSE(nothing);
  EXPECT_EQ(nothing.data(), nullptr);
  nothing.record_use(gather.view());
  nothing.reset();
  EXPECT_EQ(memory.stats().reserved, 0);
}

TEST_F(AllocatorTest, AMovedBufferIsGivenBackOnce) {
  Buffer first = take(100);
  void* const data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): empty is promised
  EXPECT_EQ(second.data(), data);
  Buffer third = take(200);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(memory.stats().total.allocated, 128);
  third.reset();
  third.reset();
  EXPECT_EQ(memory.stats().total.allocated, 0);
}

TEST_F(AllocatorTest, CountsLiveBytesPerCategoryWithPeaks) {
  const Buffer weights = take(1000, Category::kParameters);
  {
    const Buffer saved = take(100, Category::kActivations);
    EXPECT_EQ(memory.stats().total.allocated, 1024 + 128);
  }
  const Buffer gradient = take(64, Category::kGradients);
  const MemoryStats stats = memory.stats();
  const auto of = [&](Category category) { return stats.by_category[static_cast<std::size_t>(category)]; };
  const auto at_peak = [&](Category category) { return stats.at_peak[static_cast<std::size_t>(category)]; };
  EXPECT_EQ(stats.total.allocated, 1024 + 64);
  EXPECT_EQ(stats.total.allocated_peak, 1024 + 128);
  EXPECT_EQ(of(Category::kActivations).allocated, 0);
  EXPECT_EQ(of(Category::kActivations).allocated_peak, 128);
  EXPECT_EQ(of(Category::kGradients).allocated_peak, 64);
  EXPECT_EQ(at_peak(Category::kParameters), 1024);
  EXPECT_EQ(at_peak(Category::kActivations), 128);
  EXPECT_EQ(at_peak(Category::kGradients), 0);
  EXPECT_GE(stats.reserved, stats.total.allocated);

  memory.reset_peaks();
  const MemoryStats again = memory.stats();
  EXPECT_EQ(again.total.allocated_peak, 1024 + 64);
  EXPECT_EQ(again.at_peak[static_cast<std::size_t>(Category::kGradients)], 64);
  EXPECT_EQ(again.by_category[static_cast<std::size_t>(Category::kActivations)].allocated_peak, 0);
  EXPECT_EQ(again.reserved_peak, again.reserved);
}

TEST_F(AllocatorTest, AFreedBlockIsReusedAtOnceOnTheSameStream) {
  Buffer first = take(5 * kMiB);
  void* const data = first.data();
  first.reset();
  EXPECT_EQ(take(5 * kMiB).data(), data);
  EXPECT_EQ(take(2 * kMiB).data(), data);
}

TEST_F(AllocatorTest, NeighboursThatAreFreeServeALargerRequest) {
  std::vector<Buffer> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(take(2 * kMiB));
  const std::int64_t reserved = memory.stats().reserved;
  const Buffer guard = take(2 * kMiB);
  for (const int i : {1, 5, 3, 0, 2, 7, 4, 6}) pieces[static_cast<std::size_t>(i)].reset();
  const Buffer large = take(16 * kMiB);
  EXPECT_EQ(memory.stats().reserved, reserved + static_cast<std::int64_t>(2 * kMiB));
}

TEST_F(AllocatorTest, TheSmallestBlockThatFitsIsTaken) {
  Buffer large = take(9 * kMiB);
  const Buffer guard = take(kMiB);
  Buffer small = take(3 * kMiB);
  const Buffer last_guard = take(kMiB);
  void* const small_data = small.data();
  void* const large_data = large.data();
  large.reset();
  small.reset();
  const Buffer fits_small = take(2 * kMiB);
  const Buffer fits_large = take(4 * kMiB);
  EXPECT_EQ(fits_small.data(), small_data);
  EXPECT_EQ(fits_large.data(), large_data);
}

TEST_F(AllocatorTest, HolesGoBackToTheSystemWhenMoreIsNeeded) {
  std::vector<Buffer> kept;
  std::vector<Buffer> dropped;
  for (int i = 0; i < 16; ++i) {
    dropped.push_back(take(8 * kMiB));
    kept.push_back(take(2 * kMiB));
  }
  dropped.clear();
  const Buffer large = take(100 * kMiB);  // fits none of the holes of 8 MiB
  const MemoryStats stats = memory.stats();
  EXPECT_EQ(stats.total.allocated, static_cast<std::int64_t>(132 * kMiB));
  EXPECT_LE(stats.reserved, static_cast<std::int64_t>(142 * kMiB));
  EXPECT_LE(stats.reserved_peak, static_cast<std::int64_t>(160 * kMiB));  // it was 160 before the holes
  // The holes are usable again.
  for (int i = 0; i < 16; ++i) dropped.push_back(take(8 * kMiB));
  for (Buffer& buffer : dropped) {
    buffer.span<char>().front() = 1;
    buffer.span<char>().back() = 1;
  }
}

// The pattern of a training step at half of GPT-2 124M: parameters and moments stay, gradients appear block by block

// while activations go.

TEST_F(AllocatorTest, ATrainingStepReservesAtMostFivePercentMoreThanItUses) {
  constexpr std::size_t kBlockBytes = 14175000;
  constexpr std::size_t kRootBytes = 78750000;
  constexpr std::size_t kHidden = 1572864;
  std::vector<Buffer> state;
  for (int unit = 0; unit < 13; ++unit) {
    const std::size_t bytes = unit == 0 ? kRootBytes : kBlockBytes;
    state.push_back(take(bytes, Category::kParameters));
    state.push_back(take(2 * bytes, Category::kOptimizer));
  }
  std::int64_t reserved_after_first = 0;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<Buffer>> saved(12);
    std::vector<Buffer> gradients;
    for (auto& block : saved) {
      for (const std::size_t factor : {1, 1, 3, 1, 1, 4})
        block.push_back(take(factor * kHidden, Category::kActivations));
      const Buffer scratch = take(4 * kHidden);
    }
    {
      const Buffer logits = take(25750000);
      gradients.push_back(take(kRootBytes, Category::kGradients));
    }
    for (auto block = saved.rbegin(); block != saved.rend(); ++block) {
      gradients.push_back(take(kBlockBytes, Category::kGradients));
      const Buffer scratch = take(8 * kHidden);
      block->clear();
    }
    const MemoryStats stats = memory.stats();
    EXPECT_LE(stats.reserved_peak, stats.total.allocated_peak * 105 / 100);
    if (step == 0) reserved_after_first = stats.reserved_peak;
    EXPECT_EQ(stats.reserved_peak, reserved_after_first);
  }
}

TEST_F(AllocatorTest, TrimGivesEverythingFreeBack) {
  Buffer small = take(100);
  Buffer large = take(10 * kMiB);
  small.reset();
  large.reset();
  EXPECT_GT(memory.stats().reserved, 0);
  memory.trim();
  EXPECT_EQ(memory.stats().reserved, 0);
  std::memset(take(10 * kMiB).data(), 0, 10 * kMiB);
}

TEST_F(AllocatorTest, TheLimitIsRefusedWithAllItsNumbers) {
  memory.set_limit(20 * kMiB);
  const Buffer held = take(10 * kMiB, Category::kParameters);
  std::string message;
  try {
    take(12 * kMiB, Category::kActivations);
  } catch (const DeviceError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("activations"), std::string::npos) << message;
  EXPECT_NE(message.find("12582912 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("10485760 bytes live"), std::string::npos) << message;
  EXPECT_NE(message.find("limit 20971520"), std::string::npos) << message;
  EXPECT_EQ(memory.stats().total.allocated, static_cast<std::int64_t>(10 * kMiB));
  EXPECT_LE(memory.stats().reserved_peak, static_cast<std::int64_t>(20 * kMiB));
  EXPECT_TRUE(take(10 * kMiB));
}

TEST_F(AllocatorTest, UnderTheLimitHolesAndPendingBlocksAreGivenUpFirst) {
  memory.set_limit(20 * kMiB);
  {
    Buffer hole = take(8 * kMiB);
    const Buffer guard = take(2 * kMiB);
    Buffer pending = take(8 * kMiB);
    gather.view().enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
    pending.record_use(gather.view());
  }
  const Buffer all = take(20 * kMiB);
  EXPECT_EQ(memory.stats().reserved, static_cast<std::int64_t>(20 * kMiB));
}

TEST_F(AllocatorTest, AnAbsurdRequestIsADeviceErrorAndChangesNothing) {
  EXPECT_THROW(take(std::size_t{1} << 60), DeviceError);
  EXPECT_THROW(take(~std::size_t{0} - 5), DeviceError);
  EXPECT_EQ(memory.stats().reserved, 0);
  EXPECT_TRUE(take(100));
}

TEST_F(AllocatorTest, ACategoryWithAResourceOfItsOwnSharesNothing) {
  SegmentResource arena;
  Allocator allocator(arena);
  SegmentResource shared;
  allocator.set_resource(Category::kGathered, shared);
  Buffer gathered = allocator.allocate(3 * kMiB, Category::kGathered, gather.view());
  Buffer workspace = allocator.allocate(3 * kMiB, Category::kWorkspace, compute.view());
  EXPECT_EQ(shared.outstanding(), 3 * kMiB);
  EXPECT_EQ(arena.outstanding(), 3 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, static_cast<std::int64_t>(6 * kMiB));
  EXPECT_THROW(allocator.set_resource(Category::kGathered, arena), InternalError);
  gathered.reset();
  // Free memory of the one is no memory for the other.
  const Buffer more = allocator.allocate(3 * kMiB, Category::kWorkspace, compute.view());
  EXPECT_EQ(arena.outstanding(), 6 * kMiB);
  // Nobody uses it any longer: it is empty and may go.
  allocator.set_resource(Category::kGathered, arena);
  EXPECT_EQ(shared.outstanding(), 0U);
  EXPECT_EQ(allocator.stats().reserved, static_cast<std::int64_t>(6 * kMiB));
}

TEST_F(AllocatorTest, AResourceThatIsGivenUpMayGoBeforeTheAllocator) {
  SegmentResource own;
  Allocator allocator(own);
  {
    SegmentResource shared;
    allocator.set_resource(Category::kParameters, shared);
    allocator.set_resource(Category::kGradients, shared);
    allocator.allocate(3 * kMiB, Category::kParameters, compute.view()).reset();
    EXPECT_EQ(shared.outstanding(), 3 * kMiB);
    allocator.use_own_resource();
    EXPECT_EQ(shared.outstanding(), 0U);
  }
  const Buffer next = allocator.allocate(3 * kMiB, Category::kParameters, compute.view());
  EXPECT_EQ(own.outstanding(), 3 * kMiB);
}

TEST_F(AllocatorTest, SegmentsThatHappenToTouchAreNotMerged) {
  SegmentResource arena;
  {
    Allocator allocator(arena);
    std::mt19937 random(4);
    std::vector<Buffer> buffers(40);
    for (int i = 0; i < 2000; ++i) {
      Buffer& buffer = buffers[random() % buffers.size()];
      buffer.reset();
      buffer = allocator.allocate(1 + random() % (4 * kMiB), Category::kGathered, compute.view());
      std::memset(buffer.data(), 3, 64 < buffer.size_bytes() ? 64 : buffer.size_bytes());
    }
    EXPECT_EQ(static_cast<std::int64_t>(arena.outstanding()), allocator.stats().reserved);
    buffers.clear();
    allocator.trim();
    EXPECT_EQ(arena.num_segments(), 0U);
  }
  EXPECT_EQ(arena.num_segments(), 0U);
}

TEST_F(AllocatorTest, AResourceThatIsFullIsAskedAgainAfterItsHolesAreBack) {
  SegmentResource arena;
  arena.capacity = 10 * kMiB;
  Allocator allocator(arena);
  allocator.allocate(6 * kMiB, Category::kGathered, compute.view()).reset();
  const Buffer whole = allocator.allocate(9 * kMiB, Category::kGathered, compute.view());
  EXPECT_TRUE(whole);
  EXPECT_THROW(allocator.allocate(2 * kMiB, Category::kGathered, compute.view()), DeviceError);
}

TEST_F(AllocatorTest, RandomUseKeepsBlocksApartAndTheCountsTrue) {
  std::mt19937 random(9);
  std::vector<Buffer> buffers(60);
  std::int64_t live = 0;
  const auto rounded = [](const Buffer& buffer) {
    return static_cast<std::int64_t>((buffer.size_bytes() + 63) / 64 * 64);
  };
  for (int i = 0; i < 4000; ++i) {
    const std::size_t slot = random() % buffers.size();
    Buffer& buffer = buffers[slot];
    live -= rounded(buffer);
    if (buffer) {
      ASSERT_EQ(buffer.span<std::uint32_t>().front(), slot);
      ASSERT_EQ(buffer.span<std::uint32_t>().back(), slot);
    }
    buffer.reset();
    const std::size_t largest = random() % 4 == 0 ? 6 * kMiB : 40000;
    buffer = take(4 + random() % largest / 4 * 4, static_cast<Category>(random() % kNumMemoryCategories));
    buffer.span<std::uint32_t>().front() = static_cast<std::uint32_t>(slot);
    buffer.span<std::uint32_t>().back() = static_cast<std::uint32_t>(slot);
    live += rounded(buffer);
    ASSERT_EQ(memory.stats().total.allocated, live);
    ASSERT_GE(memory.stats().reserved, live);
  }
}

}  // namespace
}  // namespace tessera::test
