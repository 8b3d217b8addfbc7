// `tessera bench collectives`: our collectives of one host beside Open MPI's and beside plain copying, in the same run.
#pragma once

#include <cstddef>

namespace tessera {

struct BenchCollectivesOptions {
  std::size_t shard_bytes = std::size_t{4} << 20;  // per rank; a multiple of 64
  int repeats = 80;                                // of every contender; the fastest counts
  bool large = false;                              // also the share of fingerprints in a step of GPT-2 124M
  bool json = false;
};

// Collective over MPI_COMM_WORLD, which must be initialised with MPI_THREAD_MULTIPLE and lie on one host. World rank 0 prints. Bandwidth
// is ranks × shard_bytes ÷ time of the slowest rank; copy is memcpy of as many bytes by all ranks at once. Contenders take turns, so that
// whatever else the machine does meets all of them. Then what fingerprints cost (bench_fingerprints.h). Returns the exit code.
int run_bench_collectives(const BenchCollectivesOptions& options);

}  // namespace tessera
