#include "checkpoint/huggingface_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// Not the ordered kind, which looks through all keys for each new one: an index of 4 MiB would take minutes.
using Json = nlohmann::json;

// A tree of it takes some thirty times its size.
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{4} << 20;
constexpr int kMaxIndexDepth = 4;

[[noreturn]] void refuse(const std::string& path, const std::string& rule) {
  throw CheckpointError(fmt::format("{}: {}", path, rule));
}

Json parse_index(const std::string& text, const std::string& path) {
  const auto bounded = [&](int depth, Json::parse_event_t /*event*/, const Json& /*value*/) {
    if (depth > kMaxIndexDepth) refuse(path, fmt::format("JSON nested deeper than {} levels", kMaxIndexDepth));
    return true;
  };
  try {
    return Json::parse(text, bounded);
  } catch (const Json::parse_error& error) {
    refuse(path, fmt::format("no JSON, at byte {}", error.byte));
  }
}

// Tensor → file.
std::map<std::string, std::string> read_index(FileSystem& files, const std::string& path) {
  const Json json = parse_index(read_small_file(files, path, kMaxIndexBytes), path);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    refuse(path, "lacks weight_map, an object of tensors and their files");
  std::map<std::string, std::string> file_of_tensor;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    // A name that led out of the folder would let an index make us read any file.
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || !name.ends_with(".safetensors"))
      refuse(path, fmt::format("{} is in {}, expected a *.safetensors file of the same folder", tensor,
                               file.dump(-1, ' ', true, Json::error_handler_t::replace)));
    file_of_tensor[tensor] = name;
  }
  if (file_of_tensor.empty()) refuse(path, "weight_map names no tensor");
  return file_of_tensor;
}

void add_file(FileSystem& files, const std::string& folder, const std::string& name, HuggingFaceFiles& found) {
  const std::string path = fmt::format("{}/{}", folder, name);
  const SafetensorsHeader header = read_safetensors_header(files, path);
  for (const SafetensorsEntry& entry : header.tensors) {
    const auto [place, is_new] = found.tensors.try_emplace(
        entry.name, HuggingFaceTensor{found.names.size(), entry.dtype, entry.shape, header.data_offset + entry.begin});
    if (!is_new) refuse(path, fmt::format("{} is in {} as well", entry.name, found.names[place->second.file]));
  }
  found.names.push_back(name);
}

HuggingFaceFiles read_shards(FileSystem& files, const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kHuggingFaceIndexName);
  const std::map<std::string, std::string> file_of_tensor = read_index(files, path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of_tensor) names.insert(file);
  HuggingFaceFiles found;
  for (const std::string& name : names) add_file(files, folder, name, found);
  for (const auto& [tensor, file] : file_of_tensor) {
    const auto place = found.tensors.find(tensor);
    if (place == found.tensors.end() || found.names[place->second.file] != file)
      refuse(path, fmt::format("{} is to be in {}, which does not hold it", tensor, file));
  }
  for (const auto& [tensor, place] : found.tensors)
    if (!file_of_tensor.contains(tensor))
      refuse(path, fmt::format("does not name {}, which {} holds", tensor, found.names[place.file]));
  return found;
}

}  // namespace

HuggingFaceFiles find_huggingface_files(FileSystem& files, const std::string& folder) {
  const auto has = [&](const char* name) { return files.exists(fmt::format("{}/{}", folder, name)); };
  if (has(kHuggingFaceWeightsName)) {
    HuggingFaceFiles found;
    add_file(files, folder, kHuggingFaceWeightsName, found);
    return found;
  }
  if (has(kHuggingFaceIndexName)) return read_shards(files, folder);
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"}) {
    if (has(other))
      throw CheckpointError(
          fmt::format("{}: weights are read from safetensors files alone, and {} has none", other, folder),
          "load the folder with transformers, and save_pretrained() it again");
  }
  refuse(folder, fmt::format("holds neither {} nor {}", kHuggingFaceWeightsName, kHuggingFaceIndexName));
}

std::string encode_huggingface_index(const std::map<std::string, std::string>& file_of_tensor,
                                     std::uint64_t total_bytes) {
  Json map = Json::object();
  for (const auto& [tensor, file] : file_of_tensor) map[tensor] = file;
  return Json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(map)}}.dump(2) + "\n";
}

}  // namespace tessera
