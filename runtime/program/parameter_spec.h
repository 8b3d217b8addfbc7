// A model's parameters and units as plain data: all that sharding, schedules and checkpoints see of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

namespace tessera {

enum class InitKind : std::uint8_t { kNormal, kZero, kOne };

struct ParameterSpec {
  std::string name;  // "block.3.attention.query.weight"
  Shape shape;
  InitKind init = InitKind::kNormal;
  double init_std = 0.0;  // of kNormal
  bool decay = true;      // weight decay applies: matrices yes; norms and biases no
  bool frozen = false;    // never updated: no part of the gradient norm, no moments
  bool tied = false;      // used by two segments (token embedding and head): its gradient has two parts (lookup, head)
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

// What one instruction on a segment of a micro-batch takes from the allocator, in bytes, over what lives when it starts.
struct SegmentMemory {
  std::int64_t kept = 0;              // activations at its end; negative where it frees what earlier segments kept
  std::int64_t activations_peak = 0;  // the most activations and …
  std::int64_t workspace_peak = 0;    // … the most scratch at once, each at its own moment
  // Both at the moment when their sum is largest.
  std::int64_t activations_at_peak = 0, workspace_at_peak = 0;
  friend bool operator==(const SegmentMemory&, const SegmentMemory&) = default;
};

// A piece of the model that runs as one instruction: "embedding", "block.0" …, "head". parameters: indices into the model's list.
struct SegmentSpec {
  std::string name;
  std::vector<int> parameters;
  SegmentMemory forward;           // of a training step; the head has none of its own
  SegmentMemory backward;          // the head: with its forward and loss
  SegmentMemory evaluate;          // without gradients; the head: losses
  SegmentMemory logits;            // the head: of one position
  std::int64_t forward_flops = 0;  // multiply-adds × 2 of one micro-batch, products and attention
};

// The parameters gathered and reduced together.
struct UnitSpec {
  std::string name;             // "root", "block.0", "blocks.0-3"
  std::vector<int> parameters;  // indices into the model's list
  std::vector<int> segments;    // indices into the model's segments, in forward order
  bool frozen = false;          // all its parameters are: its gradient is dropped instead of reduced
};

struct ModelSpec {
  std::vector<ParameterSpec> parameters;
  std::vector<SegmentSpec> segments;    // forward order: embedding, blocks, head
  std::int64_t constant_bytes = 0;      // scratch that lives as long as the model runs (tables of positions)
  std::int64_t num_parameters() const;  // distinct elements
  std::int64_t num_parameters_in_products() const;  // of matrices that multiply every token (the tied table once)
};

}  // namespace tessera
