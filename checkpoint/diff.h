// Where two checkpoints differ, whatever the layouts they were saved in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace tessera {

struct TensorDifference {
  enum class Kind : std::uint8_t { kOnlyInFirst, kOnlyInSecond, kShape, kValues };
  Kind kind = Kind::kValues;
  std::string name;
  Extents first_shape, second_shape;  // of kShape
  // Of kValues. Elements differ where their bits do: −0 and 0 differ by 0.
  std::int64_t num_different = 0;
  std::int64_t first_index = -1;  // the lowest logical index that differs
  double max_difference = 0;      // the largest absolute difference; NaN where one is not a number
};

struct CheckpointDiff {
  bool same_root = false;                     // nothing was read then
  std::vector<TensorDifference> differences;  // by name
  std::vector<std::string> model;             // fields of the model that differ
};

// Reads only logical blocks whose digests differ.
CheckpointDiff diff_checkpoints(CheckpointReader& first, CheckpointReader& second);

}  // namespace tessera
