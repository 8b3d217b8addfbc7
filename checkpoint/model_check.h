// Whether a checkpoint is of the model that is to be trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/fields.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace tessera {

struct ExpectedTensor {
  std::string name;
  Extents shape;
};

enum class ExtraTensors : std::uint8_t {
  kRefuse,  // a resume: everything saved has a place
  kIgnore,  // weights only: optimizer state stays unread
};

// CheckpointError that names every field of the model and every tensor that differs. Fields tell apart what shapes cannot (an activation, a norm).
void check_model(const Manifest& manifest, const std::string& folder, const Fields& model,
                 const std::vector<ExpectedTensor>& tensors, ExtraTensors extra);

}  // namespace tessera
