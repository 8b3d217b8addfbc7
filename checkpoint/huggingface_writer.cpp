#include "checkpoint/huggingface_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "checkpoint/huggingface_files.h"
#include "checkpoint/streamed_file.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using ReadSlices = std::function<void(const std::vector<TargetSlice>&)>;

constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;

std::int64_t size_of(const Extents& shape) {
  std::int64_t size = 0;
  require(element_count(shape, size), "the shape of a parameter");
  return size;
}

void append(StreamedFile& file, std::span<const float> values) {
  file.append(std::as_bytes(values));
}

void write_plain(StreamedFile& file, const HuggingFacePlace& part, const ReadSlices& read) {
  const std::int64_t size = size_of(part.shape);
  std::vector<float> chunk(static_cast<std::size_t>(std::min(size, kChunkElements)));
  for (std::int64_t first = 0; first < size; first += kChunkElements) {
    const std::int64_t count = std::min(kChunkElements, size - first);
    read({{part.parameter, first, count, chunk.data()}});
    append(file, std::span(chunk).first(static_cast<std::size_t>(count)));
  }
}

// Row i of theirs is column i of each part.
void write_transposed(StreamedFile& file, const HuggingFaceOutput& output, const ReadSlices& read) {
  std::vector<std::vector<float>> parts;
  for (const HuggingFacePlace& part : output.parts) {
    const std::int64_t size = size_of(part.shape);
    read({{part.parameter, 0, size, parts.emplace_back(static_cast<std::size_t>(size)).data()}});
  }
  const auto inputs = static_cast<std::size_t>(output.shape[0]);
  const std::size_t outputs = static_cast<std::size_t>(output.shape[1]) / parts.size();
  std::vector<float> row;
  for (std::size_t i = 0; i < inputs; ++i) {
    row.clear();
    for (const std::vector<float>& part : parts)
      for (std::size_t o = 0; o < outputs; ++o) row.push_back(part[o * inputs + i]);
    append(file, row);
  }
}

void write_file(FileSystem& files, const std::string& path, std::span<const HuggingFaceOutput> outputs,
                const ReadSlices& read) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t end = 0;
  for (const HuggingFaceOutput& output : outputs) {
    const std::uint64_t begin = end;
    end += output.bytes();
    entries.push_back({.name = output.name, .dtype = "F32", .shape = output.shape, .begin = begin, .end = end});
  }
  // transformers refuses files that do not say whose tensors they are.
  const std::string header = encode_safetensors_header({{"format", "pt"}}, entries);
  StreamedFile file(files, path, header.size() + end);
  file.append(std::as_bytes(std::span(header)));
  for (const HuggingFaceOutput& output : outputs) {
    if (output.parts.front().transposed)
      write_transposed(file, output, read);
    else
      for (const HuggingFacePlace& part : output.parts) write_plain(file, part, read);
  }
  file.finish();
}

}  // namespace

std::uint64_t HuggingFaceOutput::bytes() const {
  return static_cast<std::uint64_t>(size_of(shape)) * sizeof(float);
}

std::vector<HuggingFaceOutput> huggingface_outputs(HuggingFaceLayout layout,
                                                   const std::vector<ParameterSpec>& parameters) {
  std::vector<HuggingFaceOutput> outputs;
  std::map<std::string, std::size_t> index;
  for (HuggingFacePlace& place : huggingface_places(layout, parameters)) {
    const auto [found, is_new] = index.try_emplace(place.tensor, outputs.size());
    if (is_new) outputs.push_back({full_name(layout, place.tensor), place.tensor_shape(), {}});
    outputs[found->second].parts.push_back(std::move(place));
  }
  for (HuggingFaceOutput& output : outputs) std::ranges::sort(output.parts, {}, &HuggingFacePlace::part);
  return outputs;
}

std::vector<std::size_t> cut_into_shards(const std::vector<HuggingFaceOutput>& outputs, std::uint64_t max_bytes) {
  std::vector<std::size_t> counts;
  std::uint64_t bytes = 0;
  for (const HuggingFaceOutput& output : outputs) {
    if (counts.empty() || bytes + output.bytes() > max_bytes) {
      counts.push_back(0);
      bytes = 0;
    }
    ++counts.back();
    bytes += output.bytes();
  }
  return counts;
}

WrittenWeights write_huggingface_weights(FileSystem& files, const std::string& folder,
                                         const std::vector<HuggingFaceOutput>& outputs, std::uint64_t max_shard_bytes,
                                         const ReadSlices& read) {
  WrittenWeights written;
  const std::vector<std::size_t> counts = cut_into_shards(outputs, max_shard_bytes);
  std::map<std::string, std::string> file_of_tensor;
  std::size_t first = 0;
  for (std::size_t shard = 0; shard < counts.size(); ++shard) {
    const std::string name = counts.size() == 1
                                 ? kHuggingFaceWeightsName
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, counts.size());
    const auto part = std::span(outputs).subspan(first, counts[shard]);
    write_file(files, fmt::format("{}/{}", folder, name), part, read);
    for (const HuggingFaceOutput& output : part) {
      file_of_tensor[output.name] = name;
      written.bytes += output.bytes();
    }
    written.files.push_back(name);
    first += counts[shard];
  }
  if (counts.size() > 1)
    write_small_file(files, fmt::format("{}/{}", folder, kHuggingFaceIndexName),
                     encode_huggingface_index(file_of_tensor, written.bytes));
  return written;
}

}  // namespace tessera
