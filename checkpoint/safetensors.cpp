#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/safetensors_json.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kDataAlignment = 64;
constexpr std::size_t kMaxRuleBytes = 300;

struct DTypeRow {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DTypeRow, 15> kDTypes{{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"F8_E5M2", 1},
                                            {"F8_E4M3", 1},
                                            {"I16", 2},
                                            {"U16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I32", 4},
                                            {"U32", 4},
                                            {"F32", 4},
                                            {"F64", 8},
                                            {"I64", 8},
                                            {"U64", 8}}};

// Names in a rule come from the file: the message stays one line of bounded length.
[[noreturn]] void refuse_header(const std::string& path, std::string rule) {
  if (rule.size() > kMaxRuleBytes) rule = rule.substr(0, kMaxRuleBytes) + "…";
  std::ranges::replace_if(
      rule, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
  throw CheckpointError(fmt::format("{}: no safetensors file: {}", path, rule));
}

std::uint64_t decode_length(const std::string& bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return length;
}

std::string encode_length(std::uint64_t length) {
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  return bytes;
}

void check_names(const std::string& path, const SafetensorsHeader& header) {
  std::vector<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const SafetensorsEntry& tensor : header.tensors) names.emplace_back(tensor.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) refuse_header(path, fmt::format("{} stands twice", *twice));
}

// The tensor's own fields agree.
void check_size(const std::string& path, const SafetensorsEntry& tensor) {
  const std::size_t element_bytes = safetensors_dtype_bytes(tensor.dtype);
  if (element_bytes == 0) refuse_header(path, fmt::format("{} has the unknown dtype {}", tensor.name, tensor.dtype));
  std::int64_t count = 0, bytes = 0;
  if (!element_count(tensor.shape, count) ||
      __builtin_mul_overflow(count, static_cast<std::int64_t>(element_bytes), &bytes))
    refuse_header(path, fmt::format("{} of {} has a size that does not fit 63 bits", tensor.name, str(tensor.shape)));
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != static_cast<std::uint64_t>(bytes))
    refuse_header(path, fmt::format("{} of {} {} needs {} bytes, data_offsets are [{}, {}]", tensor.name, tensor.dtype,
                                    str(tensor.shape), bytes, tensor.begin, tensor.end));
}

// The tensors, in the order of their data, fill the data without gap or overlap.
void check_offsets(const std::string& path, const SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const SafetensorsEntry& tensor : header.tensors) {
    if (tensor.begin != end)
      refuse_header(path, fmt::format("{} begins at byte {} of the data, {} expected: {}", tensor.name, tensor.begin,
                                      end, tensor.begin < end ? "an overlap" : "a gap"));
    end = tensor.end;
    if (end > data_bytes)
      refuse_header(path, fmt::format("{} ends at byte {} of the data, which has {}", tensor.name, end, data_bytes));
  }
  if (end != data_bytes) refuse_header(path, fmt::format("{} bytes follow the last tensor", data_bytes - end));
}

}  // namespace

std::size_t safetensors_dtype_bytes(std::string_view dtype) {
  const auto* row = std::ranges::find(kDTypes, dtype, &DTypeRow::name);
  return row == kDTypes.end() ? 0 : row->bytes;
}

bool element_count(const Extents& shape, std::int64_t& count) {
  count = 1;
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return false;
  return true;
}

std::string str(const Extents& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

SafetensorsHeader read_safetensors_header(FileSystem& files, const std::string& path) {
  const auto file = files.open(path);
  if (file->size() < kLengthBytes)
    refuse_header(path, fmt::format("{} bytes, a header's length alone has {}", file->size(), kLengthBytes));
  std::string text(kLengthBytes, '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  const std::uint64_t length = decode_length(text);
  if (length > kMaxSafetensorsHeaderBytes)
    refuse_header(path, fmt::format("a header of {} bytes, at most {} are read", length, kMaxSafetensorsHeaderBytes));
  if (length > file->size() - kLengthBytes)
    refuse_header(path, fmt::format("a header of {} bytes, {} are there", length, file->size() - kLengthBytes));
  text.resize(length);
  file->read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
  // A parser would skip white space and a byte order mark here, and take a NUL for the end; the format does not.
  if (!text.starts_with('{')) refuse_header(path, "the header does not begin with '{'");
  if (text.find('\0') != std::string::npos) refuse_header(path, "the header holds a NUL byte");

  SafetensorsHeader header{.data_offset = kLengthBytes + length};
  const std::string problem = parse_safetensors_json(text, header);
  if (!problem.empty()) refuse_header(path, problem);
  check_names(path, header);
  for (const SafetensorsEntry& tensor : header.tensors) check_size(path, tensor);
  // Tensors without elements share an offset with their neighbour and come first.
  std::ranges::stable_sort(header.tensors, {},
                           [](const SafetensorsEntry& tensor) { return std::pair(tensor.begin, tensor.end); });
  check_offsets(path, header, file->size() - header.data_offset);
  return header;
}

std::string encode_safetensors_header(const std::map<std::string, std::string>& metadata,
                                      const std::vector<SafetensorsEntry>& tensors) {
  // By hand: an ordered JSON object looks through all its keys for each new one.
  std::string text = fmt::format(R"({{"__metadata__":{})", nlohmann::json(metadata).dump());
  for (const SafetensorsEntry& tensor : tensors)
    text +=
        fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", nlohmann::json(tensor.name).dump(),
                    tensor.dtype, fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  text += "}";
  const std::uint64_t padded = (kLengthBytes + text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  text.resize(padded - kLengthBytes, ' ');
  return encode_length(text.size()) + text;
}

}  // namespace tessera
