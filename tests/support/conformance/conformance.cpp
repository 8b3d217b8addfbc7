#include "tests/support/conformance/conformance.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/support/conformance/data.h"
#include "tests/support/conformance/identity.h"
#include "tests/support/conformance/timing.h"

namespace tessera::testing {
namespace {

// Without shared memory all placings are one.
std::vector<Placing> placings(CommunicatorFactory& factory) {
  if (factory.shared_memory() == nullptr) return {Placing::kPrivate};
  return {Placing::kPrivate, Placing::kShared, Placing::kMixed};
}

// Nothing, one element, fewer than ranks, odd, and more than any piece that a backend moves at once (small chunks need less for that).
std::vector<std::size_t> sizes(const ConformanceRank& at) {
  return {0, 1, 3, 1001, at.options.max_chunk_elements > 1000 ? 300'007U : 5'003U};
}
// The same, for calls that move one such shard per rank.
std::vector<std::size_t> shard_sizes(const ConformanceRank& at) {
  return {0, 1, 5, 1001, at.options.max_chunk_elements > 1000 ? 70'001U : 3'001U};
}

// A rank with one communicator over the world and one stream.
struct World {
  explicit World(ConformanceRank& at)
      : rank(at.rank),
        size(at.num_ranks),
        factory(*at.factory),
        communicator(at.factory->create(canonical_groups({.dp = at.num_ranks})[0], {})),
        stream_owner(device.create_stream("conformance", StreamMode::kQueue)),
        stream(stream_owner.view()) {
    prepare(device.allocator(), factory);
  }

  // An operand of this rank.
  template <typename T>
  Guarded<T> guarded(Placing placing, std::size_t count) {
    return Guarded<T>(device.allocator(), stream, rank, placing, count);
  }

  int rank, size;
  CommunicatorFactory& factory;
  CpuDevice device;
  std::unique_ptr<Communicator> communicator;
  Stream stream_owner;
  StreamView stream;
};

template <typename T>
T gathered_value(int rank, std::size_t i) {
  return static_cast<T>(static_cast<std::uint64_t>(rank) * 1'000'003U + i * 7U);
}

template <typename T>
void check_all_gather(World& world, DType dtype, std::size_t count, Placing placing, bool in_place) {
  auto input = world.guarded<T>(placing, in_place ? 0 : count);
  auto output = world.guarded<T>(placing, count * static_cast<std::size_t>(world.size));
  T* own = in_place ? output.data() + count * static_cast<std::size_t>(world.rank) : input.data();
  for (std::size_t i = 0; i < count; ++i) own[i] = gathered_value<T>(world.rank, i);
  world.communicator->all_gather({.input = own, .output = output.data(), .count = count, .dtype = dtype}, world.stream)
      .synchronize();
  std::size_t wrong = 0;
  for (int peer = 0; peer < world.size; ++peer) {
    for (std::size_t i = 0; i < count; ++i) {
      wrong += output[static_cast<std::size_t>(peer) * count + i] != gathered_value<T>(peer, i) ? 1U : 0U;
    }
  }
  EXPECT_EQ(wrong, 0U) << count << " of " << name_of(dtype) << (in_place ? " in place" : "");
}

void all_gather_places_shards_in_rank_order(ConformanceRank& at) {
  World world(at);
  for (const Placing placing : placings(world.factory)) {
    for (const bool in_place : {false, true}) {
      for (const std::size_t count : shard_sizes(at)) {
        check_all_gather<std::uint32_t>(world, DType::kUInt32, count, placing, in_place);
      }
      check_all_gather<std::uint8_t>(world, DType::kUInt8, 1001, placing, in_place);
      check_all_gather<std::uint16_t>(world, DType::kBFloat16, 4099, placing, in_place);
      check_all_gather<std::int64_t>(world, DType::kInt64, 777, placing, in_place);
    }
  }
}

// Slices of every kind: none for some ranks, one element, many.
std::vector<std::uint64_t> ragged_counts(int size, std::uint64_t largest) {
  std::vector<std::uint64_t> counts;
  for (int r = 0; r < size; ++r) {
    counts.push_back(r % 3 == 1 ? 0 : largest / static_cast<std::uint64_t>(r + 1) + static_cast<std::uint64_t>(r));
  }
  return counts;
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::uint64_t before(const std::vector<std::uint64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0});
}

std::size_t wrong_tree_sums(int num_ranks, std::span<const float> got, std::size_t first, std::uint64_t salt) {
  std::size_t wrong = 0;
  std::vector<float> addends(static_cast<std::size_t>(num_ranks));
  for (std::size_t i = 0; i < got.size(); ++i) {
    for (int r = 0; r < num_ranks; ++r) addends[static_cast<std::size_t>(r)] = ragged(r, first + i, salt);
    wrong += same_bits(got[i], tree_of(addends)) ? 0U : 1U;
  }
  return wrong;
}

void reduce_scatter_sums_parts_in_tree_order(ConformanceRank& at) {
  World world(at);
  for (const Placing placing : placings(world.factory)) {
    for (const bool in_place : {false, true}) {
      for (const std::size_t count : shard_sizes(at)) {
        // Three parts of one call: equal slices, ragged slices, and nothing at all.
        const auto ranks = static_cast<std::size_t>(world.size);
        const std::vector<std::vector<std::uint64_t>> counts = {std::vector<std::uint64_t>(ranks, count),
                                                                ragged_counts(world.size, count),
                                                                std::vector<std::uint64_t>(ranks)};
        std::vector<std::unique_ptr<Guarded<float>>> inputs, outputs;
        ReduceScatterOptions options;
        for (std::size_t p = 0; p < counts.size(); ++p) {
          const std::uint64_t mine = counts[p][static_cast<std::size_t>(world.rank)];
          inputs.push_back(std::make_unique<Guarded<float>>(world.device.allocator(), world.stream, world.rank, placing,
                                                            sum_of(counts[p])));
          outputs.push_back(std::make_unique<Guarded<float>>(world.device.allocator(), world.stream, world.rank,
                                                             placing, in_place ? 0 : mine));
          for (std::size_t i = 0; i < inputs[p]->size(); ++i) (*inputs[p])[i] = ragged(world.rank, i, p);
          float* output = in_place ? inputs[p]->data() + before(counts[p], world.rank) : outputs[p]->data();
          options.parts.push_back({inputs[p]->data(), output, counts[p]});
        }
        world.communicator->reduce_scatter(options, world.stream).synchronize();
        for (std::size_t p = 0; p < counts.size(); ++p) {
          const std::uint64_t mine = counts[p][static_cast<std::size_t>(world.rank)];
          const std::span<const float> got{static_cast<const float*>(options.parts[p].output), mine};
          EXPECT_EQ(wrong_tree_sums(world.size, got, before(counts[p], world.rank), p), 0U)
              << "part " << p << ", " << mine << " elements" << (in_place ? ", in place" : "");
        }
      }
    }
  }
}

void reduce_scatter_of_integers_is_exact(ConformanceRank& at) {
  World world(at);
  const std::uint64_t count = 2001;
  const auto ranks = static_cast<std::int64_t>(world.size);
  auto input = world.guarded<std::int64_t>(Placing::kShared, count * static_cast<std::size_t>(world.size));
  auto output = world.guarded<std::int64_t>(Placing::kShared, count);
  const std::vector<std::uint64_t> counts(static_cast<std::size_t>(world.size), count);
  const auto first = static_cast<std::int64_t>(count) * world.rank;
  const auto call = [&](ReduceOp op) {
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = (world.rank + 1) * (static_cast<std::int64_t>(i) - 700);
    ReduceScatterOptions options{
        .parts = {{input.data(), output.data(), counts}}, .dtype = DType::kInt64, .reduce = op};
    world.communicator->reduce_scatter(options, world.stream).synchronize();
  };
  call(ReduceOp::kSum);  // Σ (r+1) x = x · N (N+1) / 2
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(output[i], (first + static_cast<std::int64_t>(i) - 700) * ranks * (ranks + 1) / 2);
  }
  call(ReduceOp::kMin);  // negative x: the last rank holds the smallest
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t x = first + static_cast<std::int64_t>(i) - 700;
    ASSERT_EQ(output[i], x < 0 ? x * ranks : x);
  }
}

template <typename T>
void check_integer_all_reduce(World& world, DType dtype, std::size_t count, Placing placing) {
  const T ranks = static_cast<T>(world.size);
  auto data = world.guarded<T>(placing, count);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
    for (std::size_t i = 0; i < count; ++i)
      data[i] = static_cast<T>(static_cast<T>(world.rank) * 3 + static_cast<T>(i));
    world.communicator->all_reduce({.data = data.data(), .count = count, .dtype = dtype, .reduce = op}, world.stream)
        .synchronize();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const T lowest = static_cast<T>(i);
      const T highest = static_cast<T>(lowest + (ranks - 1) * 3);
      const T sum = static_cast<T>(ranks * lowest + 3 * (ranks * (ranks - 1) / 2));
      const T expected = op == ReduceOp::kSum ? sum : op == ReduceOp::kMin ? lowest : highest;
      wrong += data[i] == expected ? 0U : 1U;
    }
    EXPECT_EQ(wrong, 0U) << name_of(op) << " of " << count << ' ' << name_of(dtype);
  }
}

void all_reduce_follows_the_tree_and_the_operation(ConformanceRank& at) {
  World world(at);
  for (const Placing placing : placings(world.factory)) {
    for (const std::size_t count : sizes(at)) {
      auto data = world.guarded<float>(placing, count);
      for (std::size_t i = 0; i < count; ++i) data[i] = ragged(world.rank, i);
      world.communicator->all_reduce({.data = data.data(), .count = count}, world.stream).synchronize();
      EXPECT_EQ(wrong_tree_sums(world.size, data.span(), 0, 0), 0U) << count << " fp32";
    }
    // Several buffers in one call.
    for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{40'001}}) {
      auto first = world.guarded<float>(placing, 1'003);
      auto second = world.guarded<float>(placing, count);
      for (std::size_t i = 0; i < first.size(); ++i) first[i] = ragged(world.rank, i);
      for (std::size_t i = 0; i < count; ++i) second[i] = ragged(world.rank, i);
      world.communicator
          ->all_reduce({.data = first.data(), .count = first.size(), .more = {{second.data(), count}}}, world.stream)
          .synchronize();
      EXPECT_EQ(wrong_tree_sums(world.size, first.span(), 0, 0), 0U) << "the first of two";
      EXPECT_EQ(wrong_tree_sums(world.size, second.span(), 0, 0), 0U) << count << " fp32, the second of two";
    }
    check_integer_all_reduce<std::int64_t>(world, DType::kInt64, 22, placing);
    check_integer_all_reduce<std::int64_t>(world, DType::kInt64, 40'001, placing);
    check_integer_all_reduce<std::int32_t>(world, DType::kInt32, 4'097, placing);
    check_integer_all_reduce<std::uint64_t>(world, DType::kUInt64, 4'097, placing);
  }
}

// With B = 2^24, B + 1 is B in fp32 (a tie, to even) and 1 - B is exact, so the order of additions can be read off the
// result.
void the_tree_pairs_neighbours(ConformanceRank& at) {
  World world(at);
  if (world.size != 4) return;
  constexpr float kB = 16777216.0F;
  const float addends[2][4] = {{1.0F, kB, 1.0F, -kB}, {1.0F, 1.0F, kB, -kB}};
  float sums[2] = {addends[0][world.rank], addends[1][world.rank]};
  world.communicator->all_reduce({.data = sums, .count = 2}, world.stream).synchronize();
  EXPECT_EQ(sums[0], 1.0F);  // (1 + B) + (1 - B) = B - (B - 1); from left to right 0, from right to left 2
  EXPECT_EQ(sums[1], 2.0F);  // (1 + 1) + (B - B); first with last and inner two 1
}

void minimum_and_maximum_of_floats_see_nan(ConformanceRank& at) {
  World world(at);
  const bool last = world.rank == world.size - 1;
  float data[3] = {static_cast<float>(world.rank), -static_cast<float>(world.rank), last ? std::nanf("") : 1.0F};
  world.communicator->all_reduce({.data = data, .count = 3, .reduce = ReduceOp::kMax}, world.stream).synchronize();
  EXPECT_EQ(data[0], static_cast<float>(world.size - 1));
  EXPECT_EQ(data[1], 0.0F);
  EXPECT_TRUE(std::isnan(data[2]));
}

void broadcast_copies_from_every_root(ConformanceRank& at) {
  World world(at);
  for (const Placing placing : placings(world.factory)) {
    for (int root = 0; root < world.size; ++root) {
      for (const std::size_t count : sizes(at)) {
        auto data = world.guarded<std::uint32_t>(placing, count);
        for (std::size_t i = 0; i < count; ++i) data[i] = gathered_value<std::uint32_t>(world.rank, i);
        world.communicator
            ->broadcast({.data = data.data(), .count = count, .dtype = DType::kUInt32, .root = root}, world.stream)
            .synchronize();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += data[i] == gathered_value<std::uint32_t>(root, i) ? 0U : 1U;
        EXPECT_EQ(wrong, 0U) << count << " from root " << root;
      }
    }
  }
}

// Even ranks send first, odd ranks receive first; then the other way round, so that every pair of neighbours moves data
// both ways.
void neighbours_exchange_in_both_directions(ConformanceRank& at) {
  World world(at);
  for (const Placing placing : placings(world.factory)) {
    for (const std::size_t count : sizes(at)) {
      for (const int lower_parity : {0, 1}) {
        const bool lower = world.rank % 2 == lower_parity;
        const int peer = lower ? world.rank + 1 : world.rank - 1;
        if (peer < 0 || peer >= world.size) continue;
        auto mine = world.guarded<std::uint32_t>(placing, count);
        auto theirs = world.guarded<std::uint32_t>(placing, count);
        for (std::size_t i = 0; i < count; ++i) mine[i] = gathered_value<std::uint32_t>(world.rank, i);
        const SendOptions send{.data = mine.data(), .count = count, .dtype = DType::kUInt32, .peer = peer};
        const RecvOptions recv{.data = theirs.data(), .count = count, .dtype = DType::kUInt32, .peer = peer};
        if (lower) world.communicator->send(send, world.stream);
        const Work received = world.communicator->recv(recv, world.stream);
        const Work last = lower ? received : world.communicator->send(send, world.stream);
        last.synchronize();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += theirs[i] == gathered_value<std::uint32_t>(peer, i) ? 0U : 1U;
        EXPECT_EQ(wrong, 0U) << count << " from rank " << peer;
      }
    }
  }
}

void nobody_passes_a_barrier_before_all_have_reached_it(ConformanceRank& at) {
  World world(at);
  for (int round = 1; round <= 50; ++round) {
    if (at.shared != nullptr) at.shared->fetch_add(1);
    world.communicator->barrier({}, world.stream).synchronize();
    if (at.shared == nullptr) continue;
    EXPECT_GE(at.shared->load(), static_cast<std::int64_t>(round) * world.size);
  }
}

// Buffers are filled again as soon as each Work is done, and no barrier separates the calls: a backend that lets a peer
// read late, or that mixes up two calls, shows here.
void consecutive_calls_need_no_barrier(ConformanceRank& at) {
  World world(at);
  const auto ranks = static_cast<std::size_t>(world.size);
  for (const Placing placing : {Placing::kPrivate, Placing::kShared}) {
    for (const std::size_t count : {std::size_t{33}, std::size_t{9'001}}) {
      auto full = world.guarded<float>(placing, count * ranks);
      auto shard = world.guarded<float>(placing, count);
      auto words = world.guarded<std::int64_t>(placing, 22);
      const ReduceScatterOptions scatter{
          .parts = {{full.data(), shard.data(), std::vector<std::uint64_t>(ranks, count)}}};
      for (std::uint64_t round = 0; round < 8; ++round) {
        for (std::size_t i = 0; i < full.size(); ++i) full[i] = ragged(world.rank, i, round);
        world.communicator->reduce_scatter(scatter, world.stream).synchronize();
        ASSERT_EQ(wrong_tree_sums(world.size, shard.span(), count * static_cast<std::size_t>(world.rank), round), 0U);
        std::fill(full.span().begin(), full.span().end(), -1.0F);
        world.communicator->all_gather({.input = shard.data(), .output = full.data(), .count = count}, world.stream)
            .synchronize();
        ASSERT_EQ(wrong_tree_sums(world.size, full.span(), 0, round), 0U);
        std::fill(shard.span().begin(), shard.span().end(), -2.0F);
        for (std::size_t i = 0; i < words.size(); ++i)
          words[i] = static_cast<std::int64_t>(round * 100 + i) * world.rank;
        world.communicator
            ->all_reduce({.data = words.data(), .count = words.size(), .dtype = DType::kInt64}, world.stream)
            .synchronize();
        for (std::size_t i = 0; i < words.size(); ++i) {
          ASSERT_EQ(words[i], static_cast<std::int64_t>(round * 100 + i) * world.size * (world.size - 1) / 2);
        }
      }
    }
  }
}

// Every rank belongs to several groups; each axis has its stream, and calls of all axes are queued before any is waited
// for.
void groups_on_different_streams_do_not_disturb_each_other(ConformanceRank& at) {
  CpuDevice device;
  prepare(device.allocator(), *at.factory);
  const MeshShape shape = at.num_ranks % 2 == 0 ? MeshShape{.dp = at.num_ranks / 2, .pp = 1, .tp = 2}
                                                : MeshShape{.dp = at.num_ranks, .pp = 1, .tp = 1};
  struct Lane {
    std::unique_ptr<Communicator> communicator;
    Stream stream;
    std::vector<std::unique_ptr<Guarded<std::uint32_t>>> outputs;
    Work last;
  };
  std::vector<Lane> lanes;
  for (const Group& group : canonical_groups(shape)) {
    auto communicator = at.factory->create(group, {});
    EXPECT_EQ(communicator != nullptr, group.position_of(at.rank) >= 0) << group.name();
    if (communicator == nullptr) continue;
    lanes.push_back({std::move(communicator), device.create_stream(group.name(), StreamMode::kQueue), {}, {}});
  }
  constexpr int kCalls = 20;
  for (int call = 0; call < kCalls; ++call) {
    for (Lane& lane : lanes) {
      const std::size_t count = call % 2 == 0 ? 100 : 20'000;
      const auto ranks = static_cast<std::size_t>(lane.communicator->size());
      lane.outputs.push_back(std::make_unique<Guarded<std::uint32_t>>(device.allocator(), lane.stream.view(), at.rank,
                                                                      Placing::kShared, count * ranks));
      std::uint32_t* own = lane.outputs.back()->data() + count * static_cast<std::size_t>(lane.communicator->rank());
      for (std::size_t i = 0; i < count; ++i) own[i] = gathered_value<std::uint32_t>(at.rank + 100 * call, i);
      lane.last = lane.communicator->all_gather(
          {.input = own, .output = lane.outputs.back()->data(), .count = count, .dtype = DType::kUInt32},
          lane.stream.view());
    }
  }
  for (Lane& lane : lanes) lane.last.synchronize();
  for (Lane& lane : lanes) {
    for (int call = 0; call < kCalls; ++call) {
      Guarded<std::uint32_t>& output = *lane.outputs[static_cast<std::size_t>(call)];
      const std::size_t count = output.size() / static_cast<std::size_t>(lane.communicator->size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < output.size(); ++i) {
        const int member = lane.communicator->group().members[i / count];
        wrong += output[i] == gathered_value<std::uint32_t>(member + 100 * call, i % count) ? 0U : 1U;
      }
      EXPECT_EQ(wrong, 0U) << "call " << call << " on " << lane.communicator->group().name();
    }
  }
}

}  // namespace

const std::vector<ConformanceCase>& conformance_cases() {
  static const std::vector<ConformanceCase> cases = [] {
    std::vector<ConformanceCase> all = {
        {"AllGatherPlacesShardsInRankOrder", all_gather_places_shards_in_rank_order},
        {"ReduceScatterSumsPartsInTreeOrder", reduce_scatter_sums_parts_in_tree_order},
        {"ReduceScatterOfIntegersIsExact", reduce_scatter_of_integers_is_exact},
        {"AllReduceFollowsTheTreeAndTheOperation", all_reduce_follows_the_tree_and_the_operation},
        {"TheTreePairsNeighbours", the_tree_pairs_neighbours},
        {"MinimumAndMaximumOfFloatsSeeNan", minimum_and_maximum_of_floats_see_nan},
        {"BroadcastCopiesFromEveryRoot", broadcast_copies_from_every_root},
        {"NeighboursExchangeInBothDirections", neighbours_exchange_in_both_directions},
        {"NobodyPassesABarrierBeforeAllHaveReachedIt", nobody_passes_a_barrier_before_all_have_reached_it},
        {"ConsecutiveCallsNeedNoBarrier", consecutive_calls_need_no_barrier},
        {"GroupsOnDifferentStreamsDoNotDisturbEachOther", groups_on_different_streams_do_not_disturb_each_other},
    };
    for (const auto& more : {identity_cases(), timing_cases()}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return cases;
}

}  // namespace tessera::testing
