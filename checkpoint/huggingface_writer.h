// Writes a model's parameters as the safetensors files of a Hugging Face folder: one, or shards with an index.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/huggingface_mapping.h"
#include "checkpoint/tensor_slice.h"

namespace tessera {

// One of their tensors, made of ours.
struct HuggingFaceOutput {
  std::string name;  // in full
  Extents shape;
  std::vector<HuggingFacePlace> parts;  // in the order in which they lie side by side
  std::uint64_t bytes() const;          // of fp32
};
// A matrix of a tied model is there once, as the table.
std::vector<HuggingFaceOutput> huggingface_outputs(HuggingFaceLayout layout,
                                                   const std::vector<ParameterSpec>& parameters);

// How many outputs each file holds: as many as fit, at least one. max_bytes: of a file's data.
std::vector<std::size_t> cut_into_shards(const std::vector<HuggingFaceOutput>& outputs, std::uint64_t max_bytes);

struct WrittenWeights {
  std::vector<std::string> files;
  std::uint64_t bytes = 0;  // of tensors
};
// read: fills targets with elements of our parameters; what it throws passes through. At most one of their transposed tensors is in memory at a time,
// of others a few MiB. Files are durable when it returns; the folder is not.
WrittenWeights write_huggingface_weights(FileSystem& files, const std::string& folder,
                                         const std::vector<HuggingFaceOutput>& outputs, std::uint64_t max_shard_bytes,
                                         const std::function<void(const std::vector<TargetSlice>&)>& read);

}  // namespace tessera
