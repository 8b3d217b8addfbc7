// Ranks as threads that exchange texts. A rank that leaves, by an exception or because it is dead, makes the others' exchanges fail, as a lost
// rank does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/rank_exchange.h"

namespace tessera::test {

class ThreadRanks {
 public:
  explicit ThreadRanks(int num_ranks) : texts_(static_cast<std::size_t>(num_ranks)) {}

  int num_ranks() const { return static_cast<int>(texts_.size()); }
  std::vector<std::string> exchange(int rank, const std::string& text);
  void leave();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, result_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  bool lost_ = false;
};

class ThreadExchange final : public RankExchange {
 public:
  // alive: throws where this rank is dead.
  ThreadExchange(
      ThreadRanks& ranks, int rank, std::function<void()> alive = [] {})
      : ranks_(ranks), rank_(rank), alive_(std::move(alive)) {}
  int rank() const override { return rank_; }
  int num_ranks() const override { return ranks_.num_ranks(); }
  std::vector<std::string> exchange(const std::string& text) override {
    alive_();
    return ranks_.exchange(rank_, text);
  }

 private:
  ThreadRanks& ranks_;
  int rank_;
  std::function<void()> alive_;
};

// Runs the body of each rank in a thread of its own; returns the message of the exception each ended with, "" where it ended well.
std::vector<std::string> run_ranks(int num_ranks, const std::function<void(ThreadRanks&, int rank)>& body);

}  // namespace tessera::test
