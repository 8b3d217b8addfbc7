// The state of a model whose every value is a function of step, tensor and logical index, cut as a rank of some layout holds it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/rank_exchange.h"
#include "checkpoint/tensor_slice.h"
#include "checkpoint/writer.h"
#include "fsdp/units.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/support/tiny_model.h"

namespace tessera::test {

float synthetic_value(std::int64_t step, const std::string& tensor, std::int64_t index);

// Shard `shard` of all units: parameters, .m and .v.
class SyntheticState {
 public:
  SyntheticState(const ModelSpec& model, const std::string& wrap, int num_shards, int shard);

  void fill(std::int64_t step);
  void clear();
  // Values that are not those of the step.
  std::int64_t num_wrong(std::int64_t step) const;
  std::vector<SourceSlice> sources() const;
  std::vector<TargetSlice> targets();

 private:
  struct Part {
    ShardLayout layout;
    std::string suffix;
    std::vector<float> values;
  };
  const ModelSpec& model_;
  int shard_;
  std::vector<Part> parts_;
};

// What a trainer has besides.
TrainingState synthetic_training(std::int64_t step);
Fields synthetic_model_fields();

// Staging memory of a device's allocator.
class Staging {
 public:
  Buffer allocate(std::size_t bytes) {
    return device_.allocator().allocate(bytes, MemoryCategory::kWorkspace, stream_.view());
  }
  std::int64_t allocated() { return device_.allocator().stats().total.allocated; }

 private:
  CpuDevice device_;
  Stream stream_ = device_.create_stream("compute", StreamMode::kCompute);
};

// One rank's whole save, from a writer of its own.
SavedCheckpoint save(FileSystem& files, RankExchange& ranks, const CheckpointWriter::Options& options,
                     std::int64_t step, const std::vector<SourceSlice>& slices);

// All ranks of a layout save the synthetic state of `step`; replicas beyond the first write nothing. Returns rank 0's result.
SavedCheckpoint save_layout(FileSystem& files, const std::string& directory, const ModelSpec& model,
                            const std::string& wrap, int num_shards, int num_replicas, std::int64_t step);

}  // namespace tessera::test
