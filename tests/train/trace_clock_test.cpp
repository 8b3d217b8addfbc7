#include "runtime/train/trace_clock.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/threads/threads_communicator.h"
#include "runtime/base/clock.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

// align_clocks() on ranks as threads, which share one clock whatever the domains say.
std::vector<ClockOffset> align(const std::vector<std::uint64_t>& domains, int reference) {
  const int world_size = static_cast<int>(domains.size());
  const auto factories = make_threads_world(world_size);
  std::vector<ClockOffset> offsets(domains.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      CpuDevice device;
      const auto world = factories[at]->create(canonical_groups({.dp = world_size})[0], {.channel = "reduce"});
      const Stream stream = device.create_stream("reduce", StreamMode::kQueue);
      offsets[at] = align_clocks(*world, stream.view(), reference, domains[at]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return offsets;
}

TEST(TraceClock, OfOneDomainNeedsNoExchange) {
  for (const ClockOffset& offset : align({9, 9, 9}, 0)) EXPECT_EQ(offset, ClockOffset{});
}

TEST(TraceClock, OfOtherDomainsIsWithinTheUncertaintyOfTheTruth) {
  const std::vector<ClockOffset> offsets = align({1, 2, 1, 2}, 0);
  EXPECT_EQ(offsets[0], ClockOffset{});
  EXPECT_EQ(offsets[2], ClockOffset{});
  EXPECT_GT(offsets[1].uncertainty_ns, 0);
  EXPECT_LE(std::abs(offsets[1].offset_ns), offsets[1].uncertainty_ns);  // the truth is 0
  EXPECT_EQ(offsets[3], offsets[1]) << "one rank asks for its domain";
}

TEST(TraceClock, ThatIsUnknownIsOfOneRankOnly) {
  const std::vector<ClockOffset> offsets = align({0, 0, 0}, 1);
  EXPECT_EQ(offsets[1], ClockOffset{});
  EXPECT_GT(offsets[0].uncertainty_ns, 0);
  EXPECT_GT(offsets[2].uncertainty_ns, 0);
}

// The other clock is 5,000 ahead. The exchange of round trip 10 took 8 there and 2 back: the middle is 3 off, within 5.
TEST(TraceClock, TakesTheShortestOfSeveralExchanges) {
  const std::vector<ClockExchange> exchanges = {
      {.asked_ns = 100, .other_ns = 5150, .answered_ns = 400},
      {.asked_ns = 500, .other_ns = 5508, .answered_ns = 510},
      {.asked_ns = 600, .other_ns = 5680, .answered_ns = 690},
  };
  EXPECT_EQ(best_offset(exchanges), (ClockOffset{.offset_ns = 5003, .uncertainty_ns = 5}));
}

TEST(TraceClock, IsNeverFurtherFromTheTruthThanItsUncertainty) {
  for (const std::int64_t truth : {-70'000'000'000LL, -1LL, 0LL, 3'000'000LL}) {
    for (std::int64_t there = 0; there < 9; ++there) {
      for (std::int64_t back = 0; back < 9; ++back) {
        const ClockExchange exchange = {
            .asked_ns = 1000, .other_ns = 1000 + there + truth, .answered_ns = 1000 + there + back};
        const ClockOffset found = best_offset({&exchange, 1});
        EXPECT_LE(std::abs(found.offset_ns - truth), found.uncertainty_ns);
        EXPECT_LE(found.uncertainty_ns, (there + back + 1) / 2);
      }
    }
  }
}

TEST(TraceClock, DomainIsTheSameWithinAProcess) {
  EXPECT_NE(clock_domain(), 0U);
  EXPECT_EQ(clock_domain(), clock_domain());
}

}  // namespace
}  // namespace tessera
