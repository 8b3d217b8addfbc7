// `tessera bench startup`: from mpirun to the end of the first step, beside an MPI program that does nothing.
#pragma once

namespace tessera {

struct BenchStartupOptions {
  int num_ranks = 4;
  int runs = 10;  // of each, taking turns; the fastest counts
  bool json = false;
};

// Starts its own mpirun, as `tessera launch` would, on model T (2 layers × 32, a made-up corpus) with one step. Prints; returns the exit code.
int run_bench_startup(const BenchStartupOptions& options);

}  // namespace tessera
