#include "runtime/device/cpu/queue_stream.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/float_environment.h"
#include "runtime/base/spin.h"
#include "runtime/device/event_state.h"

namespace tessera {

// Work is numbered from 1 in the order of enqueue; an event is the number of the last work before it.
struct QueueStream::Queue {
  std::string name;
  std::mutex mutex;
  std::condition_variable work_comes;
  std::condition_variable work_ends;
  std::deque<std::function<void()>> waiting;  // under mutex
  bool stop = false;                          // under mutex
  bool started = false;                       // under mutex
  std::exception_ptr start_error;             // under mutex
  std::atomic<std::uint64_t> enqueued{0};
  std::atomic<std::uint64_t> completed{0};
  std::atomic<int> sleeping_waiters{0};
  // The number of the first work that threw, and what it threw: `failure` is written first and read only after
  // `failed`.
  std::atomic<std::uint64_t> failed{std::numeric_limits<std::uint64_t>::max()};
  std::exception_ptr failure;
  std::thread thread;
  std::thread::id thread_id;

  void run(const std::function<void()>& on_start) {
    set_float_environment();
    std::exception_ptr error;
    try {
      if (on_start) on_start();
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex);
      start_error = error;
      started = true;
    }
    work_ends.notify_all();
    for (std::uint64_t number = 1;; ++number) {
      spin_until([&] { return enqueued.load(std::memory_order_acquire) >= number; });
      std::function<void()> work;
      {
        std::unique_lock lock(mutex);
        work_comes.wait(lock, [&] { return !waiting.empty() || stop; });
        if (waiting.empty()) return;
        work = std::move(waiting.front());
        waiting.pop_front();
      }
      perform(number, std::move(work));
    }
  }

  void perform(std::uint64_t number, std::function<void()> work) {
    const bool poisoned = failure != nullptr;
    try {
      if (!poisoned) work();
      work = nullptr;  // what it captured is gone before anyone is told that it is done
    } catch (...) {
      failure = std::current_exception();
      failed.store(number, std::memory_order_release);
    }
    completed.store(number);
    if (sleeping_waiters.load() > 0) {
      const std::lock_guard lock(mutex);
      work_ends.notify_all();
    }
  }

  std::uint64_t add(std::function<void()> work) {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex);
      waiting.push_back(std::move(work));
      number = enqueued.load(std::memory_order_relaxed) + 1;
      enqueued.store(number, std::memory_order_release);
    }
    work_comes.notify_one();
    return number;
  }

  void wait_for(std::uint64_t number) {
    if (completed.load(std::memory_order_acquire) < number) {
      require(std::this_thread::get_id() != thread_id, "work of a stream does not wait for its own stream");
      const auto reached = [&] { return completed.load() >= number; };
      if (!spin_until(reached)) {
        std::unique_lock lock(mutex);
        sleeping_waiters.fetch_add(1);
        work_ends.wait(lock, reached);
        sleeping_waiters.fetch_sub(1);
      }
    }
    if (failed.load(std::memory_order_acquire) <= number) std::rethrow_exception(failure);
  }
};

namespace {

struct QueueEvent final : Event::State {
  QueueEvent(std::shared_ptr<QueueStream::Queue> q, std::uint64_t n) : queue(std::move(q)), number(n) {}

  bool query() const override { return queue->completed.load(std::memory_order_acquire) >= number; }
  void synchronize() const override { queue->wait_for(number); }
  Event refreshed() const override { return record(queue); }

  static Event record(const std::shared_ptr<QueueStream::Queue>& queue) {
    const std::uint64_t number = queue->enqueued.load(std::memory_order_acquire);
    return Event(std::make_shared<QueueEvent>(queue, number));
  }

  std::shared_ptr<QueueStream::Queue> queue;
  std::uint64_t number;
};

}  // namespace

QueueStream::QueueStream(Device& device, std::string name, std::function<void()> on_start)
    : device_(device), queue_(std::make_shared<Queue>()) {
  Queue& queue = *queue_;
  queue.name = std::move(name);
  queue.thread = std::thread([&queue, on_start = std::move(on_start)] { queue.run(on_start); });
  std::unique_lock lock(queue.mutex);
  queue.thread_id = queue.thread.get_id();
  queue.work_ends.wait(lock, [&] { return queue.started; });
  if (queue.start_error) {
    queue.stop = true;
    lock.unlock();
    queue.work_comes.notify_one();
    queue.thread.join();
    std::rethrow_exception(queue.start_error);
  }
}

QueueStream::~QueueStream() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->stop = true;
  }
  queue_->work_comes.notify_one();
  queue_->thread.join();
}

std::string_view QueueStream::name() const {
  return queue_->name;
}

void QueueStream::enqueue(std::function<void()> work) {
  queue_->add(std::move(work));
}

Event QueueStream::record() {
  return QueueEvent::record(queue_);
}

void QueueStream::wait(const Event& event) {
  if (event.state()) queue_->add([event] { event.synchronize(); });
}

void QueueStream::synchronize() {
  queue_->wait_for(queue_->enqueued.load(std::memory_order_acquire));
}

}  // namespace tessera
