#include "checkpoint/huggingface_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::int64_t kRunElements = std::int64_t{1} << 20;  // of one read of converted values
constexpr std::int64_t kRowsAtOnce = 16;  // of a transposed tensor: a cache line of fp32 on our side
constexpr std::size_t kMaxNamed = 12;

constexpr const char* kTable = "embedding.token.weight";

// What is wrong with a file, all of it; the first ones tell.
class Problems {
 public:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    if (found_.size() < kMaxNamed) found_.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
    ++count_;
  }
  void throw_if_any(const std::string& folder) const {
    if (count_ == 0) return;
    throw CheckpointError(
        fmt::format("{}: {}{}", folder, fmt::join(found_, "; "),
                    count_ > found_.size() ? fmt::format("; and {} more", count_ - found_.size()) : ""),
        "config.json says which tensors, of which shapes, there have to be");
  }

 private:
  std::vector<std::string> found_;
  std::size_t count_ = 0;
};

}  // namespace

HuggingFaceReader HuggingFaceReader::open(FileSystem& files, const std::string& folder, HuggingFaceLayout layout,
                                          const std::vector<ParameterSpec>& parameters) {
  HuggingFaceFiles found = find_huggingface_files(files, folder);
  HuggingFaceReader reader(folder);
  Problems problems;

  std::map<std::string, HuggingFaceTensor> by_name;
  for (auto& [name, tensor] : found.tensors) {
    if (!by_name.try_emplace(bare_name(layout, name), std::move(tensor)).second)
      problems.add("{} is there with and without its prefix", name);
  }

  std::vector<HuggingFacePlace> places = huggingface_places(layout, parameters);
  std::ranges::sort(places, {}, &HuggingFacePlace::parameter);
  const bool tied = std::ranges::find(places, kHuggingFaceHead, &HuggingFacePlace::tensor) == places.end();
  std::set<std::string> used, missing;
  const auto add_source = [&](HuggingFacePlace place, const std::string& name) -> std::optional<Source> {
    const auto tensor = by_name.find(name);
    if (tensor == by_name.end()) {
      if (missing.insert(name).second) problems.add("{} is missing", full_name(layout, name));
      return std::nullopt;
    }
    const bool first_use = used.insert(name).second;
    Source source{std::move(place), tensor->second};
    if (first_use && source.tensor.shape != source.place.tensor_shape())
      problems.add("{} is {}, expected {}", full_name(layout, name), str(source.tensor.shape),
                   str(source.place.tensor_shape()));
    if (!parse_float_format(source.tensor.dtype, source.format) && first_use)
      problems.add("{} is {}, which is not read (F32, F16, BF16)", full_name(layout, name), source.tensor.dtype);
    return source;
  };
  const std::string head(kHuggingFaceHead);
  for (HuggingFacePlace& place : places) {
    std::string name = place.tensor;
    // Writers that store shared memory once keep either name.
    if (tied && place.parameter == kTable && !by_name.contains(name) && by_name.contains(head)) name = head;
    if (auto source = add_source(std::move(place), name)) reader.sources_.push_back(std::move(*source));
  }
  if (tied && by_name.contains(head) && !used.contains(head)) {
    const auto table = std::ranges::find(reader.sources_, kTable, [](const Source& s) { return s.place.parameter; });
    if (table != reader.sources_.end()) reader.second_head_ = add_source(table->place, head);
    used.insert(head);
  }
  for (const auto& [name, tensor] : by_name) {
    if (!used.contains(name) && !is_ignorable(layout, name)) problems.add("{} is not known", full_name(layout, name));
  }
  problems.throw_if_any(folder);
  for (const std::string& name : found.names) reader.files_.push_back(files.open(fmt::format("{}/{}", folder, name)));
  return reader;
}

const HuggingFaceReader::Source& HuggingFaceReader::find(const std::string& parameter) const {
  const auto source =
      std::ranges::lower_bound(sources_, parameter, {}, [](const Source& s) { return s.place.parameter; });
  require(source != sources_.end() && source->place.parameter == parameter, parameter + " is one of the parameters");
  return *source;
}

void HuggingFaceReader::read_run(const Source& source, std::int64_t first, std::span<float> out) const {
  const ReadableFile& file = *files_[source.tensor.file];
  const std::size_t width = float_bytes(source.format);
  const std::uint64_t offset = source.tensor.begin + static_cast<std::uint64_t>(first) * width;
  if (source.format == FloatFormat::kF32) {
    file.read_at(offset, std::as_writable_bytes(out));
    return;
  }
  std::vector<std::byte> bytes(std::min<std::size_t>(out.size(), kRunElements) * width);
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t count = std::min<std::size_t>(out.size() - done, kRunElements);
    const std::span<std::byte> part = std::span(bytes).first(count * width);
    file.read_at(offset + done * width, part);
    to_floats(source.format, part, out.subspan(done, count));
    done += count;
  }
}

// Ours is [out, in], flattened; theirs [in, parts · out]. The target's elements lie in rows first … last of ours, which are as many columns of theirs.
void HuggingFaceReader::read_transposed(const Source& source, const TargetSlice& target) const {
  const std::int64_t outputs = source.place.shape[0], inputs = source.place.shape[1];
  const std::int64_t columns = outputs * source.place.num_parts;
  const std::int64_t first = target.offset / inputs, last = (target.offset + target.count - 1) / inputs;
  const std::int64_t width = last - first + 1;
  std::vector<float> rows(static_cast<std::size_t>(kRowsAtOnce * width));
  for (std::int64_t i = 0; i < inputs; i += kRowsAtOnce) {
    const std::int64_t num_rows = std::min(kRowsAtOnce, inputs - i);
    for (std::int64_t row = 0; row < num_rows; ++row)
      read_run(source, (i + row) * columns + source.place.part * outputs + first,
               std::span(rows).subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width)));
    for (std::int64_t output = 0; output < width; ++output) {
      for (std::int64_t row = 0; row < num_rows; ++row) {
        const std::int64_t place = (first + output) * inputs + i + row - target.offset;
        if (place >= 0 && place < target.count)
          target.data[place] = rows[static_cast<std::size_t>(row * width + output)];
      }
    }
  }
}

void HuggingFaceReader::read(const std::vector<TargetSlice>& targets) const {
  for (const TargetSlice& target : targets) {
    if (target.count == 0) continue;
    const Source& source = find(target.name);
    std::int64_t size = 0;
    require(element_count(source.place.shape, size) && target.offset >= 0 && target.count <= size - target.offset,
            "a target lies in its parameter");
    if (source.place.transposed)
      read_transposed(source, target);
    else
      read_run(source, source.place.part * size + target.offset,
               std::span(target.data, static_cast<std::size_t>(target.count)));
  }
}

void HuggingFaceReader::check_tied_head() const {
  if (!second_head_) return;
  const Source& table = find(kTable);
  std::int64_t size = 0;
  require(element_count(table.place.shape, size), "a shape that was checked");
  std::vector<float> ours(static_cast<std::size_t>(std::min(size, kRunElements))), theirs(ours.size());
  for (std::int64_t first = 0; first < size; first += kRunElements) {
    const auto count = static_cast<std::size_t>(std::min(kRunElements, size - first));
    read_run(table, first, std::span(ours).first(count));
    read_run(*second_head_, first, std::span(theirs).first(count));
    if (std::memcmp(ours.data(), theirs.data(), count * sizeof(float)) == 0) continue;
    throw CheckpointError(
        fmt::format("{}: {} holds other values than the embedding, but config.json says tie_word_embeddings: true",
                    folder_, kHuggingFaceHead),
        "tie_word_embeddings: false keeps both; or remove the head from the file");
  }
}

}  // namespace tessera
