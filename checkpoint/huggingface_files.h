// The weight files of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/float_formats.h"
#include "checkpoint/safetensors.h"

namespace tessera {

inline constexpr const char* kHuggingFaceConfigName = "config.json";
inline constexpr const char* kHuggingFaceWeightsName = "model.safetensors";
inline constexpr const char* kHuggingFaceIndexName = "model.safetensors.index.json";

// Where a tensor lies.
struct HuggingFaceTensor {
  std::size_t file = 0;  // index into HuggingFaceFiles::names
  std::string dtype;     // as the file says it
  Extents shape;
  std::uint64_t begin = 0;  // bytes from the start of the file
  friend bool operator==(const HuggingFaceTensor&, const HuggingFaceTensor&) = default;
};

struct HuggingFaceFiles {
  std::vector<std::string> names;
  std::map<std::string, HuggingFaceTensor> tensors;  // by their full names
};

// Reads headers alone. CheckpointError naming file and rule: no weights, weights in another format (named), a broken header, an index that does
// not fit its files, a tensor in two files.
HuggingFaceFiles find_huggingface_files(FileSystem& files, const std::string& folder);

// {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}.
std::string encode_huggingface_index(const std::map<std::string, std::string>& file_of_tensor,
                                     std::uint64_t total_bytes);

}  // namespace tessera
