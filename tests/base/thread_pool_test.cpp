#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"

namespace tessera {
namespace {

TEST(ThreadPool, EveryTaskRunsExactlyOnceForEveryNumberOfThreadsAndTasks) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const int num_tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(num_tasks));
      pool.parallel_for(num_tasks, [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortCallsInARowLoseNoTaskAndMixNoCalls) {
  ThreadPool pool(4);
  for (std::int64_t call = 0; call < 20000; ++call) {
    const std::int64_t num_tasks = call % 9;
    std::atomic<std::int64_t> sum{0};
    pool.parallel_for(num_tasks, [&, call](std::int64_t task) { sum += call + task; });
    ASSERT_EQ(sum.load(), num_tasks * call + num_tasks * (num_tasks - 1) / 2);
  }
}

TEST(ThreadPool, WritesOfTasksAreVisibleAfterTheCall) {
  ThreadPool pool(3);
  std::vector<int> plain(512, 0);
  for (int round = 1; round <= 50; ++round) {
    pool.parallel_for(512, [&](std::int64_t task) { plain[static_cast<std::size_t>(task)] += 1; });
    for (const int value : plain) ASSERT_EQ(value, round);
  }
}

TEST(ThreadPool, APoolOfOneRunsInOrderOnTheCallersThread) {
  ThreadPool pool(1);
  std::vector<std::int64_t> order;
  pool.parallel_for(5, [&](std::int64_t task) { order.push_back(task); });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, TheExceptionOfTheLowestTaskArrivesAfterAllTasksRan) {
  for (const int num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    std::atomic<int> ran{0};
    std::string message;
    try {
      pool.parallel_for(100, [&](std::int64_t task) {
        ++ran;
        if (task == 41 || task == 97) throw std::runtime_error("task " + std::to_string(task));
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "task 41");
    EXPECT_EQ(ran.load(), 100);
    // The pool goes on as if nothing had been.
    pool.parallel_for(10, [&](std::int64_t) { ++ran; });
    EXPECT_EQ(ran.load(), 110);
  }
}

TEST(ThreadPool, ACallFromItsOwnTaskIsRefused) {
  for (const int num_threads : {1, 2}) {
    ThreadPool pool(num_threads);
    EXPECT_THROW(pool.parallel_for(3, [&](std::int64_t) { pool.parallel_for(1, [](std::int64_t) {}); }), InternalError);
    int ran = 0;
    pool.parallel_for(1, [&](std::int64_t) { ++ran; });
    EXPECT_EQ(ran, 1);
  }
}

TEST(ThreadPool, OnStartRunsOncePerWorkerBeforeTheConstructorReturns) {
  std::mutex mutex;
  std::multiset<int> started;
  std::set<std::thread::id> threads;
  const ThreadPool pool(4, [&](int worker) {
    const std::lock_guard lock(mutex);
    started.insert(worker);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(started, (std::multiset<int>{1, 2, 3}));
  EXPECT_EQ(threads.size(), 3U);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(ThreadPool, AFailureOfOnStartReachesTheConstructorsCaller) {
  const auto fail_in_second = [](int worker) {
    if (worker == 2) throw DeviceError("no such core");
  };
  EXPECT_THROW(ThreadPool(3, fail_in_second), DeviceError);
}

TEST(ThreadPool, FewerThanOneThreadIsRefused) {
  EXPECT_THROW(ThreadPool(0), InternalError);
}

}  // namespace
}  // namespace tessera
