// Runs of a flattened tensor's elements in memory: what a rank saves, what a rank wants loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "fsdp/shard_layout.h"
#include "runtime/program/parameter_spec.h"

namespace tessera {

// Elements offset … offset + count - 1 of tensor `name`.
struct SourceSlice {
  std::string name;  // of a parameter, or of its optimizer state: "block.0.weight.m"
  Extents shape;     // of the whole tensor
  std::int64_t offset = 0, count = 0;
  const float* data = nullptr;
};
struct TargetSlice {
  std::string name;
  std::int64_t offset = 0, count = 0;
  float* data = nullptr;
};

Extents extents_of(const Shape& shape);

// What shard `shard` of a unit holds of each parameter, as a list. values: of the shard (layout.shard_size elements), outliving the slices.
// suffix: "" for parameters, ".m" … for optimizer state that lies like them. Both leave out parameters for which `frozen` holds where they
// have a suffix: what is never updated has no optimizer state.
// describe_slices: without data, for what is known before there are values.
std::vector<SourceSlice> describe_slices(const ModelSpec& model, const ShardLayout& layout, int shard,
                                         std::string_view suffix);
std::vector<SourceSlice> source_slices(const ModelSpec& model, const ShardLayout& layout, int shard,
                                       std::string_view suffix, std::span<const float> values);
std::vector<TargetSlice> target_slices(const ModelSpec& model, const ShardLayout& layout, int shard,
                                       std::string_view suffix, std::span<float> values);

}  // namespace tessera
