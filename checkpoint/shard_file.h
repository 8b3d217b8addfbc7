// The file of one rank: where its slices lie in it, its bytes in memory, and what the manifest will say of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_slice.h"

namespace tessera {

// A function of the slices alone, so that memory for every save of a run can be set aside at its start.
struct ShardPlan {
  std::string header;                       // the bytes in front of the data
  std::vector<std::uint64_t> file_offsets;  // of each slice, bytes
  std::uint64_t bytes = 0;                  // of the whole file; 0 where there are no slices: then there is no file
};
// InternalError for a slice that is empty or reaches past its tensor.
ShardPlan plan_shard(const std::vector<SourceSlice>& slices);

// Copies header and slices to where they lie in the file. image: plan.bytes bytes.
void fill_image(const ShardPlan& plan, const std::vector<SourceSlice>& slices, std::span<std::byte> image);

struct SliceReport {
  std::string name;
  Extents shape;
  StoredSlice place;                   // its file index is not known yet
  std::vector<std::uint64_t> digests;  // what it adds to the logical blocks it touches
};
// What one rank wrote. Without a file name: nothing.
struct ShardReport {
  FileRecord file;
  std::vector<SliceReport> slices;
};
std::string encode_report(const ShardReport& report);
ShardReport decode_report(const std::string& text);

// "shard-00000-of-00004.safetensors".
std::string shard_file_name(int index, int num_shards);

// Writes the image as folder/name; durable when it returns. slices are those of fill_image (their data is not read: the image has it).
ShardReport write_shard(FileSystem& files, const std::string& folder, const std::string& name, const ShardPlan& plan,
                        const std::vector<SourceSlice>& slices, std::span<const std::byte> image);

// Fills files, tensors and hashes of a manifest from what all ranks wrote. CheckpointError where their slices are no partition of the tensors.
void assemble(Manifest& manifest, const std::vector<ShardReport>& reports, const std::string& path);

}  // namespace tessera
