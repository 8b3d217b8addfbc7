#include "checkpoint/tensor_slice.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// visit(parameter, slice of it) for each that has a state of this suffix.
template <typename Visit>
void for_each_slice(const ModelSpec& model, const ShardLayout& layout, int shard, std::string_view suffix,
                    Visit visit) {
  for (const ShardSlice& slice : layout.slices(shard)) {
    const ParameterSpec& parameter = model.parameters.at(static_cast<std::size_t>(slice.parameter));
    if (suffix.empty() || !parameter.frozen) visit(parameter, slice);
  }
}

void require_whole_shard(const ShardLayout& layout, std::size_t num_values) {
  require(static_cast<std::int64_t>(num_values) == layout.shard_size, "values are those of one shard");
}

SourceSlice describe(const ParameterSpec& parameter, std::string_view suffix, const ShardSlice& slice) {
  return {.name = fmt::format("{}{}", parameter.name, suffix),
          .shape = extents_of(parameter.shape),
          .offset = slice.parameter_offset,
          .count = slice.size};
}

}  // namespace

Extents extents_of(const Shape& shape) {
  Extents extents;
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  return extents;
}

std::vector<SourceSlice> describe_slices(const ModelSpec& model, const ShardLayout& layout, int shard,
                                         std::string_view suffix) {
  std::vector<SourceSlice> slices;
  for_each_slice(model, layout, shard, suffix, [&](const ParameterSpec& parameter, const ShardSlice& slice) {
    slices.push_back(describe(parameter, suffix, slice));
  });
  return slices;
}

std::vector<SourceSlice> source_slices(const ModelSpec& model, const ShardLayout& layout, int shard,
                                       std::string_view suffix, std::span<const float> values) {
  require_whole_shard(layout, values.size());
  std::vector<SourceSlice> slices;
  for_each_slice(model, layout, shard, suffix, [&](const ParameterSpec& parameter, const ShardSlice& slice) {
    slices.push_back(describe(parameter, suffix, slice));
    slices.back().data = values.data() + slice.shard_offset;
  });
  return slices;
}

std::vector<TargetSlice> target_slices(const ModelSpec& model, const ShardLayout& layout, int shard,
                                       std::string_view suffix, std::span<float> values) {
  require_whole_shard(layout, values.size());
  std::vector<TargetSlice> slices;
  for_each_slice(model, layout, shard, suffix, [&](const ParameterSpec& parameter, const ShardSlice& slice) {
    slices.push_back({.name = fmt::format("{}{}", parameter.name, suffix),
                      .offset = slice.parameter_offset,
                      .count = slice.size,
                      .data = values.data() + slice.shard_offset});
  });
  return slices;
}

}  // namespace tessera
