#include "runtime/device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

TEST(InlineStream, RunsWorkOnTheCallersThreadBeforeEnqueueReturns) {
  CpuDevice device;
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  int value = 0;
  compute.view().enqueue([&] { value = 3; });
  EXPECT_EQ(value, 3);
  EXPECT_TRUE(compute.view().record().query());
}

TEST(QueueStream, RunsWorkInOrderOnOneThreadOfItsOwn) {
  CpuDevice device;
  const Stream gather = device.create_stream("gather", StreamMode::kQueue);
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 100; ++i) {
    gather.view().enqueue([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  gather.view().synchronize();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(threads[static_cast<std::size_t>(i)], threads[0]);
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

}  // namespace
}  // namespace tessera
