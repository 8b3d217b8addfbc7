#include "checkpoint/communicator_exchange.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "parallel/threads/threads_communicator.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

// Runs `body` on ranks as threads, with an exchange each.
template <typename Body>
void on_ranks(int num_ranks, Body body) {
  const auto factories = make_threads_world(num_ranks);
  const Placement placement = Placement::canonical(num_ranks);
  const Group world = canonical_groups({.dp = num_ranks})[0];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CpuDevice device;
      const Stream stream = device.create_stream("checkpoint", StreamMode::kCompute);
      const auto communicator = factories[static_cast<std::size_t>(rank)]->create(world, {});
      CommunicatorExchange exchange(*communicator, placement, stream.view());
      body(exchange, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CommunicatorExchange, GivesEveryRankTheTextsOfAll) {
  for (const int num_ranks : {1, 2, 3}) {
    on_ranks(num_ranks, [&](RankExchange& ranks, int rank) {
      EXPECT_EQ(ranks.rank(), rank);
      EXPECT_EQ(ranks.num_ranks(), num_ranks);
      for (const std::size_t unit : {0, 1, 1000}) {
        const auto text_of = [&](int r) { return std::string(static_cast<std::size_t>(r) * unit, 'a') + '\0'; };
        const std::vector<std::string> texts = ranks.exchange(text_of(rank));
        ASSERT_EQ(texts.size(), static_cast<std::size_t>(num_ranks));
        for (int r = 0; r < num_ranks; ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)], text_of(r));
      }
      EXPECT_EQ(ranks.exchange(""), std::vector<std::string>(static_cast<std::size_t>(num_ranks)));
    });
  }
}

TEST(CommunicatorExchange, CarriesAnAgreement) {
  on_ranks(3, [](RankExchange& ranks, int rank) {
    EXPECT_EQ(agree(ranks, [&] { return std::to_string(rank); }), (std::vector<std::string>{"0", "1", "2"}));
    try {
      agree(ranks, [&]() -> std::string {
        if (rank > 0) throw CheckpointError("disk " + std::to_string(rank), "buy one");
        return "";
      });
      ADD_FAILURE() << "an error of one rank is one of all";
    } catch (const CheckpointError& error) {
      EXPECT_STREQ(error.what(), "rank 1: disk 1; hint: buy one");
    }
  });
}

}  // namespace
}  // namespace tessera
