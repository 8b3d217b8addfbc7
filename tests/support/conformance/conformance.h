// What every communicator backend must do, written once. A backend joins by calling run_conformance from each rank of a
// world, ranks being threads or processes; the expectations are gtest's.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace tessera::testing {

// One rank of a world that runs the suite.
struct ConformanceRank {
  int rank = 0;
  int num_ranks = 1;
  CommunicatorFactory* factory = nullptr;
  CommunicatorOptions options;                  // those the factory was made with
  std::atomic<std::int64_t>* shared = nullptr;  // a zeroed counter that all ranks see; nullptr where there is none
};

struct ConformanceCase {
  std::string name;
  void (*run)(ConformanceRank&);
};

// Every case is collective: all ranks run the same one with a factory that no other case has used.
const std::vector<ConformanceCase>& conformance_cases();

}  // namespace tessera::testing
