// What every segment's code needs: sizes, a stream, and the constants that live as long as the model.
#pragma once

#include "models/device_tensor.h"
#include "models/gpt_shape.h"
#include "runtime/ops/cross_entropy.h"

namespace tessera {

struct GptContext {
  GptContext(const ModelConfig& model, const LossConfig& loss, std::int64_t micro_batch_size, StreamView compute);

  // Lives from forward to backward.
  DeviceTensor activation(Shape s) const { return {stream, MemoryCategory::kActivations, s}; }
  // Lives inside one call.
  DeviceTensor scratch(Shape s) const { return {stream, MemoryCategory::kWorkspace, s}; }

  GptShape shape;
  ops::CrossEntropyOptions loss;
  StreamView stream;
  DeviceTensor rope_cos, rope_sin;  // [S, D/2], rope only (kWorkspace)
};

}  // namespace tessera
