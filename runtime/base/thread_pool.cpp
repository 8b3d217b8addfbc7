#include "runtime/base/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/float_environment.h"
#include "runtime/base/spin.h"

namespace tessera {

// How a call is published and closed. `open` is the generation of the call whose fields below it are valid, 0 between
// calls. A worker first counts itself into `inside` and then looks at `open`; the caller first closes `open` and then
// waits for `inside` to be 0. Both sides are sequentially consistent, so either the worker sees the door closed and
// leaves, or the caller sees the worker and waits: nobody reads the fields of a call that has returned, and sleeping
// workers hold nobody up.
struct ThreadPool::State {
  // Written by the caller while the door is closed and nobody is inside.
  const std::function<void(std::int64_t)>* task = nullptr;
  std::int64_t num_tasks = 0;

  alignas(64) std::atomic<std::uint64_t> open{0};
  alignas(64) std::atomic<std::int64_t> next{0};
  alignas(64) std::atomic<int> inside{0};
  alignas(64) std::atomic<bool> called{false};
  std::atomic<int> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  std::uint64_t generation = 0;

  std::mutex mutex;
  std::condition_variable work_comes;
  std::condition_variable all_left;

  std::mutex error_mutex;
  std::exception_ptr error;
  std::int64_t error_task = std::numeric_limits<std::int64_t>::max();

  int num_started = 0;  // under mutex, as start_error
  std::exception_ptr start_error;
  std::vector<std::thread> workers;

  void run_tasks() {
    for (;;) {
      const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= num_tasks) return;
      run_one(index);
    }
  }

  void run_one(std::int64_t index) {
    try {
      (*task)(index);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (index < error_task) {
        error_task = index;
        error = std::current_exception();
      }
    }
  }

  void leave() {
    if (inside.fetch_sub(1) == 1 && caller_sleeps.load()) {
      const std::lock_guard lock(mutex);
      all_left.notify_one();
    }
  }

  void work() {
    std::uint64_t seen = 0;
    const auto called_again = [&] {
      const std::uint64_t now = open.load(std::memory_order_acquire);
      return (now != 0 && now != seen) || stop.load(std::memory_order_acquire);
    };
    for (;;) {
      if (!spin_until(called_again)) {
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1);
        work_comes.wait(lock, [&] {
          const std::uint64_t now = open.load();
          return (now != 0 && now != seen) || stop.load();
        });
        sleepers.fetch_sub(1);
      }
      if (stop.load(std::memory_order_acquire)) return;
      inside.fetch_add(1);
      const std::uint64_t now = open.load();
      if (now != 0) {
        seen = now;
        run_tasks();
      }
      leave();
    }
  }

  void start(int worker, const std::function<void(int)>& on_start) {
    set_float_environment();
    std::exception_ptr failure;
    try {
      if (on_start) on_start(worker);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (failure && !start_error) start_error = failure;
    ++num_started;
    all_left.notify_one();
  }

  void stop_all() {
    {
      const std::lock_guard lock(mutex);
      stop.store(true);
    }
    work_comes.notify_all();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }
};

ThreadPool::ThreadPool(int num_threads, std::function<void(int worker)> on_start) : state_(std::make_unique<State>()) {
  require(num_threads >= 1, "a thread pool counts its caller: at least one thread");
  State& state = *state_;
  try {
    state.workers.reserve(static_cast<std::size_t>(num_threads - 1));
    for (int worker = 1; worker < num_threads; ++worker) {
      state.workers.emplace_back([&state, worker, on_start] {
        state.start(worker, on_start);
        state.work();
      });
    }
  } catch (...) {
    state.stop_all();
    throw;
  }
  {
    std::unique_lock lock(state.mutex);
    state.all_left.wait(lock, [&] { return state.num_started == num_threads - 1; });
  }
  if (state.start_error) {
    state.stop_all();
    std::rethrow_exception(state.start_error);
  }
}

ThreadPool::~ThreadPool() {
  state_->stop_all();
}

int ThreadPool::num_threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::parallel_for(std::int64_t num_tasks, const std::function<void(std::int64_t task)>& task) {
  State& state = *state_;
  require(!state.called.exchange(true), "parallel_for has one caller at a time and is not called from its own tasks");
  if (num_tasks > 0) {
    state.task = &task;
    state.num_tasks = num_tasks;
    state.next.store(0, std::memory_order_relaxed);
    const bool alone = state.workers.empty() || num_tasks == 1;
    if (!alone) {
      state.open.store(++state.generation);
      if (state.sleepers.load() > 0) {
        const std::lock_guard lock(state.mutex);
        const std::int64_t wanted = num_tasks - 1;
        if (wanted >= static_cast<std::int64_t>(state.workers.size())) {
          state.work_comes.notify_all();
        } else {
          for (std::int64_t i = 0; i < wanted; ++i) state.work_comes.notify_one();
        }
      }
    }
    state.run_tasks();
    if (!alone) {
      state.open.store(0);
      const auto all_left = [&] { return state.inside.load() == 0; };
      if (!spin_until(all_left)) {
        std::unique_lock lock(state.mutex);
        state.caller_sleeps.store(true);
        state.all_left.wait(lock, all_left);
        state.caller_sleeps.store(false);
      }
    }
  }
  std::exception_ptr error;
  {
    // Everybody has left; the lock is for the eyes of whoever reads this without the argument above.
    const std::lock_guard lock(state.error_mutex);
    error = std::exchange(state.error, nullptr);
    state.error_task = std::numeric_limits<std::int64_t>::max();
  }
  state.called.store(false);
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera
