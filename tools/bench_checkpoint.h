// `tessera bench checkpoint`: saving, stalling and loading beside the plain writes, copies and reads of as many bytes, in the same run.
#pragma once

#include <string>

namespace tessera {

struct BenchCheckpointOptions {
  int mib = 512;           // of state, in 64 tensors
  int repeats = 5;         // of every contender, taking turns; the fastest counts
  std::string path = ".";  // a folder of the file system to measure; what the bench makes there it removes
  bool json = false;
};

// One rank. save: begin() to the end of wait(), beside write() of the same bytes and fsync. stall: begin() alone, beside memcpy of the state. load:
// opening, reading and checking all of it, beside read(), both from the disk and from the page cache. Returns the exit code.
int run_bench_checkpoint(const BenchCheckpointOptions& options);

}  // namespace tessera
