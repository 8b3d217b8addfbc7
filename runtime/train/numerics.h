// The numerics record: everything beside config and seed that decides bits. Ranks whose records differ may still train together, but the promise
// of equal bits is off, and the run says so.
#pragma once

#include <cstdint>
#include <string>

#include "models/gpt.h"
#include "runtime/config/load.h"
#include "runtime/device/device.h"

namespace tessera {

struct NumericsRecord {
  std::string instruction_set;  // "avx2", of oneDNN's products
  std::string device;           // "cpu"
  std::string matmul_library;   // "oneDNN 2.6.3"
  std::int64_t lanes = 1;
  std::int64_t tp_splits = 1;
  std::string precision;  // compute/reduce: "fp32/fp32"
  std::int64_t micro_batch_size = 1;
  std::string reduce;  // fsdp.reduce
  std::uint64_t kernel_digest = 0;

  std::uint64_t hash() const;
  std::string json() const;
};

// Runs the kernels once on fixed inputs at the job's shapes (milliseconds) for the digest.
NumericsRecord make_numerics_record(const JobConfig& config, const ResolvedBatch& batch, StreamView compute);

}  // namespace tessera
