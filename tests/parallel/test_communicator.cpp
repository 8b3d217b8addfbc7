// What the public functions promise on every backend, shown on ranks as threads.
#include <gtest/gtest.h>

#include <thread>

#include "parallel/threads/threads_communicator.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

// Keeps every record as text, and refuses the call numbered `refuse`.
struct Recorder final : CollectiveObserver {
  std::vector<std::string> lines;
  std::int64_t refuse = -1;
  std::thread::id thread;
  void on_call(const CollectiveCall& call) override {
    const CollectiveIdentity& identity = call.identity;
    thread = std::this_thread::get_id();
    if (static_cast<std::int64_t>(identity.sequence) == refuse) throw CollectiveError("refused");
    lines.push_back(std::string(call.group) + " " + std::to_string(identity.sequence) + " " +
                    std::string(name_of(identity.op)) + " " + std::string(name_of(identity.reduce)) + " root " +
                    std::to_string(identity.root) + " " + std::string(name_of(identity.dtype)) + " " +
                    std::to_string(identity.num_elements) + " " + std::string(identity.what_view()) + "/" +
                    std::string(identity.phase_view()));
  }
};

struct Alone {
  Alone()
      : factory(std::move(make_threads_world(1)[0])),
        recorder(std::make_shared<Recorder>()),
        communicator(factory->create(canonical_groups({})[0], {.observer = recorder})),
        stream_owner(device.create_stream("gather", StreamMode::kQueue)),
        stream(stream_owner.view()) {}
  CpuDevice device;
  std::unique_ptr<CommunicatorFactory> factory;
  std::shared_ptr<Recorder> recorder;
  std::unique_ptr<Communicator> communicator;
  Stream stream_owner;
  StreamView stream;
};

TEST(Communicator, AGroupOfOneCopiesAndIsDone) {
  Alone alone;
  const float input[3] = {1, 2, 3};
  float gathered[3] = {}, reduced[3] = {}, data[2] = {4, 5};
  alone.communicator->all_gather({.input = input, .output = gathered, .count = 3}, alone.stream);
  alone.communicator->reduce_scatter({.parts = {{input, reduced, {3}}}}, alone.stream);
  alone.communicator->all_reduce({.data = data, .count = 2}, alone.stream);
  alone.communicator->broadcast({.data = data, .count = 2, .dtype = DType::kFloat32}, alone.stream);
  alone.communicator->barrier({}, alone.stream).synchronize();
  EXPECT_EQ(gathered[2], 3.0F);
  EXPECT_EQ(reduced[0], 1.0F);
  EXPECT_EQ(data[1], 5.0F);
  EXPECT_EQ(alone.communicator->num_calls(), 5U);
}

TEST(Communicator, EveryCallIsRecordedInOrderOnTheCallingThread) {
  Alone alone;
  float data[4] = {};
  float out[4] = {};
  alone.communicator->all_gather(
      {.input = data, .output = out, .count = 4, .tag = {.what = "root", .phase = "forward"}}, alone.stream);
  alone.communicator->reduce_scatter(
      {.parts = {{data, out, {3}}, {data, out, {1}}}, .tag = {.what = "block.0", .phase = "backward"}}, alone.stream);
  alone.communicator->all_reduce(
      {.data = data, .count = 2, .reduce = ReduceOp::kMax, .tag = {.what = "norm", .phase = "update"}}, alone.stream);
  alone.communicator->broadcast({.data = data, .count = 16, .root = 0, .tag = {.what = "seed", .phase = "start"}},
                                alone.stream);
  alone.communicator->barrier({.what = "end", .phase = "teardown"}, alone.stream).synchronize();
  EXPECT_EQ(alone.recorder->lines,
            (std::vector<std::string>{"world 0 all_gather sum root -1 fp32 4 root/forward",
                                      "world 1 reduce_scatter sum root -1 fp32 4 block.0/backward",
                                      "world 2 all_reduce max root -1 fp32 2 norm/update",
                                      "world 3 broadcast sum root 0 u8 16 seed/start",
                                      "world 4 barrier sum root -1 u8 0 end/teardown"}));
  EXPECT_EQ(alone.recorder->thread, std::this_thread::get_id());
}

TEST(Communicator, ACallThatTheObserverRefusesIsNotIssuedAndTakesNoNumber) {
  Alone alone;
  alone.recorder->refuse = 0;
  float data = 1, out = 0;
  EXPECT_THROW(alone.communicator->all_gather({.input = &data, .output = &out, .count = 1}, alone.stream),
               CollectiveError);
  alone.stream.synchronize();
  EXPECT_EQ(out, 0.0F);
  EXPECT_EQ(alone.communicator->num_calls(), 0U);
  alone.recorder->refuse = -1;
  alone.communicator->all_gather({.input = &data, .output = &out, .count = 1}, alone.stream).synchronize();
  EXPECT_EQ(alone.recorder->lines.front(), "world 0 all_gather sum root -1 fp32 1 /");
}

TEST(Communicator, OptionsMayDieBeforeTheCallRuns) {
  Alone alone;
  const float input[2] = {7, 8};
  float output[2] = {};
  {
    ReduceScatterOptions options;
    options.parts.push_back({input, output, {2}});
    options.tag.what = std::string(100, 'x');
    alone.communicator->reduce_scatter(options, alone.stream);
    options.parts.clear();
  }
  alone.stream.synchronize();
  EXPECT_EQ(output[1], 8.0F);
}

TEST(Communicator, MistakesOfTheProgramAreRefusedBeforeTheyAreRecorded) {
  Alone alone;
  float data[8] = {};
  Communicator& c = *alone.communicator;
  EXPECT_THROW(c.all_gather({.input = nullptr, .output = data, .count = 1}, alone.stream), InternalError);
  EXPECT_THROW(c.all_gather({.input = data + 1, .output = data, .count = 4}, alone.stream), InternalError);
  EXPECT_THROW(c.all_gather({.input = data, .output = data, .count = 1ULL << 62}, alone.stream), InternalError);
  EXPECT_THROW(c.reduce_scatter({.parts = {{data, data + 4, {2, 2}}}}, alone.stream), InternalError);
  EXPECT_THROW(c.reduce_scatter({.parts = {{data, data + 1, {4}}}}, alone.stream), InternalError);
  EXPECT_THROW(c.reduce_scatter({.parts = {{data, data + 4, {2}}}, .dtype = DType::kBFloat16}, alone.stream),
               InternalError);
  EXPECT_THROW(c.all_reduce({.data = data, .count = 2, .dtype = DType::kUInt8}, alone.stream), InternalError);
  EXPECT_THROW(c.broadcast({.data = data, .count = 2, .root = 1}, alone.stream), InternalError);
  EXPECT_THROW(c.send({.data = data, .count = 2, .peer = 0}, alone.stream), InternalError);
  EXPECT_THROW(c.recv({.data = data, .count = 2, .peer = -1}, alone.stream), InternalError);
  EXPECT_TRUE(alone.recorder->lines.empty());
}

TEST(Communicator, AWaitThatTakesTooLongNamesTheMissingRanks) {
  auto factories = make_threads_world(3, {.timeout_seconds = 0.2});
  const Group world = canonical_groups({.dp = 3})[0];
  std::vector<std::string> messages(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      CpuDevice device;
      Stream stream = device.create_stream("gather", StreamMode::kQueue);
      auto communicator = factories[static_cast<std::size_t>(rank)]->create(world, {});
      communicator->barrier({}, stream.view()).synchronize();
      if (rank == 1) return;
      float data = 0;
      try {
        communicator
            ->all_reduce({.data = &data, .count = 1, .tag = {.what = "norm", .phase = "update", .step = 9}},
                         stream.view())
            .synchronize();
      } catch (const CollectiveError& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(messages[static_cast<std::size_t>(rank)],
              "call 1 of world/ (all_reduce norm update, step 9, 1 fp32 sum): no sign of world rank 1 within 0.2 s");
  }
}

TEST(Communicator, RanksThatCreateOtherGroupsAreCaught) {
  auto factories = make_threads_world(2);
  const std::vector<Group> groups = canonical_groups({.dp = 2});
  EXPECT_NE(factories[0]->create(groups[0], {}), nullptr);
  EXPECT_THROW(factories[1]->create(groups[1], {}), InternalError);
}

TEST(Communicator, WhoIsNoMemberGetsNoHandle) {
  auto factories = make_threads_world(2);
  const std::vector<Group> groups = canonical_groups({.dp = 1, .pp = 1, .tp = 2});
  for (const Group& group : groups) {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(factories[static_cast<std::size_t>(rank)]->create(group, {}) != nullptr, group.position_of(rank) >= 0);
    }
  }
}

}  // namespace
}  // namespace tessera
