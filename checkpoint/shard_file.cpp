#include "checkpoint/shard_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <map>

#include "checkpoint/block_hash.h"
#include "checkpoint/logical_digest.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

// Large enough that calls cost nothing, small enough that the disk starts early and hashes find their bytes in cache.
constexpr std::uint64_t kChunkBytes = 4 * kBlockBytes;

std::int64_t checked_elements(const SourceSlice& slice) {
  std::int64_t count = 0;
  require(element_count(slice.shape, count), "the shape of a tensor to save");
  require(slice.offset >= 0 && slice.count > 0 && slice.count <= count - slice.offset,
          "a slice to save lies in its tensor and is not empty");
  return count;
}

SafetensorsEntry entry_of(const SourceSlice& slice, std::uint64_t begin) {
  const bool whole = slice.count == checked_elements(slice);
  SafetensorsEntry entry{.name = slice.name, .dtype = "F32", .shape = slice.shape, .begin = begin};
  if (!whole) {
    entry.name += fmt::format("[{}:{}]", slice.offset, slice.offset + slice.count);
    entry.shape = {slice.count};
  }
  entry.end = begin + static_cast<std::uint64_t>(slice.count) * sizeof(float);
  return entry;
}

std::vector<SliceReport> report_slices(const ShardPlan& plan, const std::vector<SourceSlice>& slices,
                                       std::span<const std::byte> image) {
  std::vector<SliceReport> reports;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const SourceSlice& slice = slices[i];
    const auto* values = reinterpret_cast<const float*>(image.data() + plan.file_offsets[i]);
    reports.push_back({.name = slice.name,
                       .shape = slice.shape,
                       .place = {.file_offset = plan.file_offsets[i], .offset = slice.offset, .count = slice.count},
                       .digests = partial_digests(slice.name, slice.offset, slice.count, values)});
  }
  return reports;
}

}  // namespace

ShardPlan plan_shard(const std::vector<SourceSlice>& slices) {
  ShardPlan plan;
  if (slices.empty()) return plan;
  std::vector<SafetensorsEntry> entries;
  std::uint64_t data_bytes = 0;
  for (const SourceSlice& slice : slices) {
    entries.push_back(entry_of(slice, data_bytes));
    data_bytes = entries.back().end;
  }
  plan.header = encode_safetensors_header({{"format", "tessera-checkpoint"}}, entries);
  for (const SafetensorsEntry& entry : entries) plan.file_offsets.push_back(plan.header.size() + entry.begin);
  plan.bytes = plan.header.size() + data_bytes;
  return plan;
}

void fill_image(const ShardPlan& plan, const std::vector<SourceSlice>& slices, std::span<std::byte> image) {
  require(image.size() == plan.bytes, "the image of a shard has its size");
  if (image.empty()) return;
  std::memcpy(image.data(), plan.header.data(), plan.header.size());
  for (std::size_t i = 0; i < slices.size(); ++i)
    std::memcpy(image.data() + plan.file_offsets[i], slices[i].data,
                static_cast<std::size_t>(slices[i].count) * sizeof(float));
}

std::string shard_file_name(int index, int num_shards) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", index, num_shards);
}

ShardReport write_shard(FileSystem& files, const std::string& folder, const std::string& name, const ShardPlan& plan,
                        const std::vector<SourceSlice>& slices, std::span<const std::byte> image) {
  const auto file = files.create(fmt::format("{}/{}", folder, name), image.size());
  ShardReport report{.file = {.name = name, .bytes = image.size()}};
  // Beside the writing: on a fast disk, one core's digests would take a third of the save.
  auto slice_reports = std::async(std::launch::async, [&] { return report_slices(plan, slices, image); });
  for (std::uint64_t offset = 0; offset < image.size(); offset += kChunkBytes) {
    const auto chunk = image.subspan(offset, std::min<std::uint64_t>(kChunkBytes, image.size() - offset));
    append_block_hashes(chunk, report.file.block_hashes);
    file->write_at(offset, chunk);
  }
  file->sync();
  file->close();
  report.slices = slice_reports.get();
  return report;
}

void assemble(Manifest& manifest, const std::vector<ShardReport>& reports, const std::string& path) {
  std::map<std::string, TensorRecord> tensors;
  for (const ShardReport& report : reports) {
    if (report.file.name.empty()) continue;
    const int file = static_cast<int>(manifest.files.size());
    manifest.files.push_back(report.file);
    for (const SliceReport& slice : report.slices) {
      TensorRecord& tensor = tensors[slice.name];
      if (tensor.slices.empty()) {
        tensor.name = slice.name;
        tensor.shape = slice.shape;
        tensor.block_digests.resize(static_cast<std::size_t>(num_logical_blocks(tensor.num_elements())));
      } else if (tensor.shape != slice.shape) {
        throw CheckpointError(fmt::format("{}: {} has shape {} on one rank and {} on another", path, slice.name,
                                          str(tensor.shape), str(slice.shape)));
      }
      StoredSlice place = slice.place;
      place.file = file;
      tensor.slices.push_back(place);
      add_digests(tensor.block_digests, slice.place.offset, slice.digests);
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::ranges::sort(tensor.slices, {}, &StoredSlice::offset);
    manifest.tensors.push_back(std::move(tensor));
  }
  manifest.root_hash = root_hash(manifest.tensors);
  manifest.state_hash = state_hash(manifest.tensors);
  validate(manifest, path);
}

}  // namespace tessera
