#include "runtime/device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

// Work that holds its stream until the test opens it.
class Gate {
 public:
  void open() { promise_.set_value(); }
  std::function<void()> work() const {
    return [future = future_] { future.wait(); };
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(InlineStream, RunsWorkOnTheCallersThreadBeforeEnqueueReturns) {
  CpuDevice device;
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  std::thread::id where;
  compute.view().enqueue([&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_TRUE(compute.view().record().query());
  EXPECT_EQ(compute.view().name(), "compute");
  EXPECT_EQ(&compute.view().device(), &device);
}

TEST(InlineStream, AFailureReachesTheCallerOfEnqueueAndTheStreamGoesOn) {
  CpuDevice device;
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  EXPECT_THROW(compute.view().enqueue([] { throw DataError("bad"); }), DataError);
  int ran = 0;
  compute.view().enqueue([&] { ++ran; });
  EXPECT_NO_THROW(compute.view().synchronize());
  EXPECT_EQ(ran, 1);
}

TEST(InlineStream, WaitBlocksTheHostUntilTheOtherStreamHasPassed) {
  CpuDevice device;
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  int value = 0;  // not atomic: the wait must order it
  gather.view().enqueue([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    value = 7;
  });
  compute.view().wait(gather.view().record());
  EXPECT_EQ(value, 7);
}

TEST(QueueStream, RunsWorkInOrderOnOneThreadOfItsOwn) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  std::vector<int> order;
  std::set<std::thread::id> threads;
  for (int i = 0; i < 1000; ++i) {
    gather.view().enqueue([&, i] {
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
    });
  }
  gather.view().synchronize();
  ASSERT_EQ(order.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(threads.size(), 1U);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(QueueStream, EnqueueRecordAndWaitDoNotBlockTheHost) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  const Stream reduce = device.create_stream("reduce", StreamMode::kQueue);
  Gate gate;
  gather.view().enqueue(gate.work());
  const Event blocked = gather.view().record();
  std::atomic<bool> ran{false};
  reduce.view().wait(blocked);
  reduce.view().enqueue([&] { ran = true; });
  EXPECT_FALSE(blocked.query());
  EXPECT_FALSE(ran);
  gate.open();
  reduce.view().synchronize();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(blocked.query());
}

TEST(QueueStream, AnEventCoversTheWorkBeforeItAndNotTheWorkAfterIt) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  EXPECT_TRUE(gather.view().record().query());
  int before = 0;
  gather.view().enqueue([&] { before = 1; });
  const Event event = gather.view().record();
  Gate gate;
  gather.view().enqueue(gate.work());
  event.synchronize();
  EXPECT_EQ(before, 1);
  EXPECT_TRUE(event.query());
  gate.open();
}

TEST(QueueStream, ChainsOfWaitsAcrossStreamsKeepTheirOrder) {
  CpuDevice device;
  const Stream first = device.create_stream("first", StreamMode::kQueue);
  const Stream second = device.create_stream("second", StreamMode::kQueue);
  std::vector<int> order;  // each element is written by the one stream that may
  for (int i = 0; i < 200; ++i) {
    const Stream& from = i % 2 == 0 ? first : second;
    const Stream& to = i % 2 == 0 ? second : first;
    from.view().enqueue([&, i] { order.push_back(i); });
    to.view().wait(from.view().record());
  }
  first.view().synchronize();
  second.view().synchronize();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order.at(static_cast<std::size_t>(i)), i);
}

TEST(QueueStream, AFailurePoisonsTheStreamFromThereOn) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  Gate gate;
  gather.view().enqueue(gate.work());
  const Event before = gather.view().record();
  gather.view().enqueue([] { throw DataError("shard 3 is torn"); });
  const Event after = gather.view().record();
  std::atomic<bool> ran{false};
  gather.view().enqueue([&] { ran = true; });
  gather.view().enqueue([] { throw DataError("a later failure"); });
  gate.open();
  EXPECT_EQ(failure_of([&] { gather.view().synchronize(); }), "shard 3 is torn");
  EXPECT_EQ(failure_of([&] { gather.view().synchronize(); }), "shard 3 is torn");
  EXPECT_EQ(failure_of([&] { after.synchronize(); }), "shard 3 is torn");
  EXPECT_EQ(failure_of([&] { before.synchronize(); }), "");
  EXPECT_TRUE(after.query());
  EXPECT_FALSE(ran);
}

TEST(QueueStream, AStreamThatWaitsForAFailedOneFailsAlike) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  const Stream reduce = device.create_stream("reduce", StreamMode::kQueue);
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  gather.view().enqueue([] { throw CollectiveError("peer lost"); });
  std::atomic<bool> ran{false};
  reduce.view().wait(gather.view().record());
  reduce.view().enqueue([&] { ran = true; });
  EXPECT_THROW(reduce.view().synchronize(), CollectiveError);
  EXPECT_THROW(compute.view().wait(gather.view().record()), CollectiveError);
  EXPECT_FALSE(ran);
}

TEST(QueueStream, TheDestructorRunsWhatIsQueuedAndNeverThrows) {
  CpuDevice device;
  std::atomic<int> ran{0};
  {
    const Stream gather = device.create_stream("gather", StreamMode::kQueue);
    for (int i = 0; i < 50; ++i) gather.view().enqueue([&] { ++ran; });
    gather.view().enqueue([] { throw DataError("nobody asks"); });
  }
  EXPECT_EQ(ran, 50);
}

TEST(QueueStream, EventsOutliveTheirStream) {
  CpuDevice device;
  Event good;
  Event bad;
  {
    const Stream gather = device.create_stream("gather", StreamMode::kQueue);
    gather.view().enqueue([] {});
    good = gather.view().record();
    gather.view().enqueue([] { throw DataError("late"); });
    bad = gather.view().record();
  }
  EXPECT_TRUE(good.query());
  EXPECT_NO_THROW(good.synchronize());
  EXPECT_THROW(bad.synchronize(), DataError);
}

TEST(QueueStream, WhatWorkHoldsIsReleasedBeforeItsEventIsComplete) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  for (int i = 0; i < 200; ++i) {
    auto held = std::make_shared<int>(i);
    const std::weak_ptr<int> watch = held;
    gather.view().enqueue([held = std::move(held)] {});
    gather.view().record().synchronize();
    ASSERT_TRUE(watch.expired());
  }
}

TEST(QueueStream, WaitingForItselfIsRefusedInsteadOfHanging) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  const StreamView view = gather.view();
  view.enqueue([view] { view.synchronize(); });
  EXPECT_THROW(view.synchronize(), InternalError);
}

TEST(QueueStream, ManyHostsMayWaitForOneEvent) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  Gate gate;
  int value = 0;
  gather.view().enqueue(gate.work());
  gather.view().enqueue([&] { value = 5; });
  const Event event = gather.view().record();
  std::atomic<int> seen{0};
  std::vector<std::thread> hosts;
  for (int i = 0; i < 4; ++i) {
    hosts.emplace_back([&] {
      event.synchronize();
      seen += value;
    });
  }
  gate.open();
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(seen, 20);
}

TEST(CpuDevice, OnThreadStartRunsInEveryThreadItStarts) {
  std::mutex mutex;
  std::multiset<int> indices;
  CpuDeviceOptions options;
  options.num_threads = 3;
  options.on_thread_start = [&](int index) {
    const std::lock_guard lock(mutex);
    indices.insert(index);
  };
  CpuDevice device(options);
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  EXPECT_EQ(indices, (std::multiset<int>{-1, 1, 2}));
  EXPECT_EQ(device.pool().num_threads(), 3);
}

TEST(CpuDevice, AFailureOfOnThreadStartReachesWhoCreatesTheStream) {
  CpuDeviceOptions options;
  options.on_thread_start = [](int) { throw DeviceError("cpuset is empty"); };
  CpuDevice device(options);
  EXPECT_THROW(device.create_stream("gather", StreamMode::kQueue), DeviceError);
}

TEST(CpuDevice, IsFoundBehindItsStreams) {
  CpuDevice device;
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  EXPECT_EQ(&cpu_device(compute.view()), &device);
  EXPECT_EQ(name_of(device.kind()), "cpu");
}

#if defined(__SSE__)
TEST(CpuDevice, EveryThreadFlushesDenormalsInAndOut) {
  CpuDeviceOptions options;
  options.num_threads = 2;
  CpuDevice device(options);
  const auto flushes = [] {
    volatile float denormal = 0x1p-130F;
    volatile float normal = 0x1p-126F;
    volatile float from_denormal = denormal * 0x1p20F;
    volatile float to_denormal = normal * 0.25F;
    return from_denormal == 0.0F && to_denormal == 0.0F;
  };
  bool stream_flushes = false;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  gather.view().enqueue([&] { stream_flushes = flushes(); });
  gather.view().synchronize();
  EXPECT_TRUE(stream_flushes);
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  EXPECT_TRUE(flushes()) << "the compute stream is the caller's thread";
  // One of the two tasks meets the other, so one of them is on the worker.
  std::atomic<int> arrived{0};
  std::atomic<int> workers_that_flush{0};
  const std::thread::id caller = std::this_thread::get_id();
  device.pool().parallel_for(2, [&](std::int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    if (std::this_thread::get_id() != caller && flushes()) ++workers_that_flush;
  });
  EXPECT_EQ(workers_that_flush, 1);
}
#endif

}  // namespace
}  // namespace tessera
