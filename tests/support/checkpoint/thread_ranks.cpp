#include "tests/support/checkpoint/thread_ranks.h"

#include <thread>

#include "runtime/base/error.h"

namespace tessera::test {

std::vector<std::string> ThreadRanks::exchange(int rank, const std::string& text) {
  std::unique_lock lock(mutex_);
  texts_[static_cast<std::size_t>(rank)] = text;
  const std::uint64_t round = round_;
  if (++arrived_ == num_ranks()) {
    result_ = texts_;
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
    return result_;
  }
  changed_.wait(lock, [&] { return round_ != round || lost_; });
  if (round_ == round) throw CollectiveError("a rank is lost");
  return result_;
}

void ThreadRanks::leave() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
  changed_.notify_all();
}

std::vector<std::string> run_ranks(int num_ranks, const std::function<void(ThreadRanks&, int rank)>& body) {
  ThreadRanks ranks(num_ranks);
  std::vector<std::string> messages(static_cast<std::size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(ranks, rank);
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
        ranks.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

}  // namespace tessera::test
