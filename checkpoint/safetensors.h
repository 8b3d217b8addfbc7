// The safetensors format: 8 bytes of header length, a JSON header, the data of the tensors without gaps; all little-endian. Read as strictly as
// docs/checkpoint-format.md says, since files come from anywhere: whatever is wrong is a CheckpointError that names the file and the broken
// rule, before anything of the file's claimed size is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera {

using Extents = std::vector<std::int64_t>;  // of any number of axes, outermost first

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "I64", …: the format's own words
  Extents shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the start of the data
  friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> tensors;  // in the order of their data
  std::uint64_t data_offset = 0;          // where the data starts in the file
  friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

// Larger headers are refused: the format's own limit of 100 MB would cost a reader gigabytes.
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = std::uint64_t{16} << 20;

// Bytes of one element; 0 for a word that the format does not know.
std::size_t safetensors_dtype_bytes(std::string_view dtype);

SafetensorsHeader read_safetensors_header(FileSystem& files, const std::string& path);

// The bytes in front of the data, length included, a multiple of 64. Offsets of the tensors are as given; they follow each other from 0 on.
std::string encode_safetensors_header(const std::map<std::string, std::string>& metadata,
                                      const std::vector<SafetensorsEntry>& tensors);

// Product of the extents. False where it does not fit 63 bits or an extent is negative.
bool element_count(const Extents& shape, std::int64_t& count);
// "[768, 12]".
std::string str(const Extents& shape);

}  // namespace tessera
