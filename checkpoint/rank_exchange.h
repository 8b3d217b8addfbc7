// How the ranks of a job talk while they save and load: short texts, everybody to everybody. The trainer implements it with collectives, tests
// with threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera {

class RankExchange {
 public:
  virtual ~RankExchange() = default;
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // Collective: the text of each rank, by rank. CollectiveError where a rank is lost.
  virtual std::vector<std::string> exchange(const std::string& text) = 0;
};

// A job of one.
class SoloExchange final : public RankExchange {
 public:
  int rank() const override { return 0; }
  int num_ranks() const override { return 1; }
  std::vector<std::string> exchange(const std::string& text) override { return {text}; }
};

// Collective. Runs `work` and returns what it returned on each rank; where it threw on any, throws the same CheckpointError on all of them:
// that of the lowest rank that failed, which it names.
std::vector<std::string> agree(RankExchange& ranks, const std::function<std::string()>& work);

}  // namespace tessera
