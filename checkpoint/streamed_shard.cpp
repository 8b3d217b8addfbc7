#include "checkpoint/streamed_shard.h"

#include <fmt/format.h>

#include "checkpoint/logical_digest.h"
#include "runtime/base/error.h"

namespace tessera {

StreamedShard::StreamedShard(FileSystem& files, const std::string& folder, const std::string& name,
                             std::vector<SourceSlice> tensors)
    : tensors_(std::move(tensors)),
      plan_(plan_shard(tensors_)),
      file_(files, fmt::format("{}/{}", folder, name), plan_.bytes) {
  report_.file = {.name = name, .bytes = plan_.bytes};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const SourceSlice& tensor = tensors_[i];
    report_.slices.push_back(
        {.name = tensor.name,
         .shape = tensor.shape,
         .place = {.file_offset = plan_.file_offsets[i], .offset = 0, .count = tensor.count},
         .digests = std::vector<std::uint64_t>(static_cast<std::size_t>(num_logical_blocks(tensor.count)))});
  }
  file_.append(std::as_bytes(std::span(plan_.header)));
}

void StreamedShard::append(std::span<const float> values) {
  require(tensor_ < tensors_.size(), "there is a tensor left to append");
  const SourceSlice& tensor = tensors_[tensor_];
  const auto count = static_cast<std::int64_t>(values.size());
  require(count > 0 && count <= tensor.count - element_, "values of one tensor");
  add_digests(report_.slices[tensor_].digests, element_, partial_digests(tensor.name, element_, count, values.data()));
  file_.append(std::as_bytes(values));
  element_ += count;
  if (element_ < tensor.count) return;
  ++tensor_;
  element_ = 0;
}

ShardReport StreamedShard::finish() {
  require(tensor_ == tensors_.size(), "all tensors were appended");
  file_.finish();
  report_.file.block_hashes = file_.block_hashes();
  return report_;
}

}  // namespace tessera
