// A pool whose work is cut on a fixed grid by the caller: task i computes the same bits whichever thread runs it and
// however many threads there are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tessera {

class ThreadPool {
 public:
  // num_threads >= 1 counts the calling thread: a pool of 1 starts no thread and runs everything inline.
  // on_start runs once in each worker, 1 <= worker < num_threads (binding, oneDNN's thread count); the constructor
  // returns when all have run, and rethrows what one of them threw.
  explicit ThreadPool(int num_threads, std::function<void(int worker)> on_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Runs task(0) … task(num_tasks - 1), each once, on any thread; returns when all are done. The caller takes part. An
  // exception of a task is rethrown here after all others finished; of several, that of the lowest task. Not reentrant,
  // and one caller at a time: a task must not call parallel_for of its own pool (InternalError). Workers that find
  // nothing to do spin for microseconds, then sleep.
  void parallel_for(std::int64_t num_tasks, const std::function<void(std::int64_t task)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
