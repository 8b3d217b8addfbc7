// The one shard of a checkpoint that is made outside a run: whole tensors, written one after the other.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/shard_file.h"
#include "checkpoint/streamed_file.h"

namespace tessera {

class StreamedShard {
 public:
  // Creates folder/name. tensors: whole ones (their data is not read), in the order in which they will be appended.
  StreamedShard(FileSystem& files, const std::string& folder, const std::string& name,
                std::vector<SourceSlice> tensors);

  // The next elements; a call stays inside one tensor.
  void append(std::span<const float> values);
  // Durable when it returns.
  ShardReport finish();

 private:
  std::vector<SourceSlice> tensors_;
  ShardPlan plan_;
  StreamedFile file_;
  ShardReport report_;
  std::size_t tensor_ = 0;
  std::int64_t element_ = 0;
};

}  // namespace tessera
