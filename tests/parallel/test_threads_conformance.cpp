// The threads backend joins the conformance suite.
#include <gtest/gtest.h>

#include <thread>

#include "parallel/threads/threads_communicator.h"
#include "tests/support/conformance/conformance.h"

namespace tessera::testing {
namespace {

using Parameters = std::tuple<int, std::uint64_t, std::size_t>;  // ranks, chunk limit, case

class Threads : public ::testing::TestWithParam<Parameters> {};

TEST_P(Threads, Conforms) {
  const auto [num_ranks, max_chunk, index] = GetParam();
  const CommunicatorOptions options{.max_chunk_elements = max_chunk, .timeout_seconds = 60};
  auto factories = make_threads_world(num_ranks, options);
  std::atomic<std::int64_t> shared{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.emplace_back([&, rank, which = index] {
      ConformanceRank at{rank, num_ranks, factories[static_cast<std::size_t>(rank)].get(), options, &shared};
      conformance_cases()[which].run(at);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

std::string name_of_test(const ::testing::TestParamInfo<Parameters>& test) {
  const auto [num_ranks, max_chunk, index] = test.param;
  return conformance_cases()[index].name + "_" + std::to_string(num_ranks) + "_ranks" +
         (max_chunk == 1000 ? "_small_chunks" : "");
}

INSTANTIATE_TEST_SUITE_P(Conformance, Threads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7), ::testing::Values(1ULL << 28, 1000ULL),
                                            ::testing::Range(std::size_t{0}, conformance_cases().size())),
                         name_of_test);

}  // namespace
}  // namespace tessera::testing
