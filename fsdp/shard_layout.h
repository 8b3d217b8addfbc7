// Where every element of a unit lives: the flat parameter, its equal shards, and the slices of parameters each shard holds. Pure data.
//
//   flat:   [ p0 .. | pad | p1 ..... | pad | … | padding of the last shard ]
//   shards: [ rank 0          | rank 1          | rank 2          | rank 3  ]     shard_size each, a multiple of 64 bytes
//
// Parameters start at 64-byte boundaries in every wrap and on every number of shards, so kernels see equal alignment everywhere.
// A tied matrix has a second gradient segment (lookup), laid over the same flat range and cut at the same shard borders.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/program/parameter_spec.h"

namespace tessera {

inline constexpr std::int64_t kAlignElements = 16;  // 64 bytes of fp32

struct ParameterSlot {
  int parameter = 0;        // index into ModelSpec::parameters
  std::int64_t offset = 0;  // in the flat parameter, elements
  std::int64_t size = 0;
  friend bool operator==(const ParameterSlot&, const ParameterSlot&) = default;
};

// A run of one parameter's elements inside one shard.
struct ShardSlice {
  int parameter = 0;
  std::int64_t parameter_offset = 0;  // logical index of the first element
  std::int64_t shard_offset = 0;      // in the shard
  std::int64_t size = 0;
  friend bool operator==(const ShardSlice&, const ShardSlice&) = default;
};

struct ShardLayout {
  int num_shards = 1;
  std::int64_t shard_size = 0;       // elements
  std::vector<ParameterSlot> slots;  // ascending offsets
  int tied_slot = -1;                // index into slots of the tied matrix, -1: none

  std::int64_t flat_size() const { return shard_size * num_shards; }
  // The slot of a parameter; nullptr where the unit does not hold it.
  const ParameterSlot* find(int parameter) const;
  // Slices of shard `shard`, ascending; empty where it holds padding only.
  std::vector<ShardSlice> slices(int shard) const;
  // Elements of the lookup segment that belong to each shard (zeros where there is no tied matrix); they add up to its size.
  std::vector<std::uint64_t> lookup_counts() const;
  // Where shard `shard`'s part of the lookup segment starts in the shard.
  std::int64_t lookup_shard_offset(int shard) const;
  std::vector<std::uint64_t> shard_counts() const;  // shard_size for each shard
  friend bool operator==(const ShardLayout&, const ShardLayout&) = default;
};

ShardLayout make_shard_layout(const ModelSpec& model, const UnitSpec& unit, int num_shards);

}  // namespace tessera
