// safetensors files for tests: read, changed, written back.
#pragma once

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/safetensors.h"

namespace tessera::test {

struct RawTensor {
  std::string dtype = "F32";
  Extents shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

inline RawTensor raw_tensor(const Extents& shape, const std::vector<float>& values) {
  RawTensor tensor{.shape = shape, .bytes = std::string(values.size() * sizeof(float), '\0')};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

inline std::vector<float> floats_of(const RawTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

inline RawTensors read_safetensors(const std::string& path) {
  const auto files = make_posix_file_system();
  const SafetensorsHeader header = read_safetensors_header(*files, path);
  std::ifstream file(path, std::ios::binary);
  RawTensors tensors;
  for (const SafetensorsEntry& entry : header.tensors) {
    RawTensor& tensor = tensors[entry.name] = {entry.dtype, entry.shape, std::string(entry.end - entry.begin, '\0')};
    file.seekg(static_cast<std::streamoff>(header.data_offset + entry.begin));
    file.read(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
  }
  return tensors;
}

inline void write_safetensors(const std::string& path, const RawTensors& tensors) {
  std::vector<SafetensorsEntry> entries;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, tensor.dtype, tensor.shape, data.size(), data.size() + tensor.bytes.size()});
    data += tensor.bytes;
  }
  std::ofstream(path, std::ios::binary) << encode_safetensors_header({{"format", "pt"}}, entries) << data;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace tessera::test
