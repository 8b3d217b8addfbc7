// The names of the enumerations of this folder.
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/device/memory_stats.h"

namespace tessera {

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return "cuda";
  }
  throw InternalError("internal: name of an unknown device kind");
}

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameters: return "parameters";
    case MemoryCategory::kGradients: return "gradients";
    case MemoryCategory::kOptimizer: return "optimizer";
    case MemoryCategory::kActivations: return "activations";
    case MemoryCategory::kGathered: return "gathered";
    case MemoryCategory::kWorkspace: return "workspace";
    case MemoryCategory::kCommunication: return "communication";
    case MemoryCategory::kCheckpoint: return "checkpoint";
  }
  throw InternalError("internal: name of an unknown memory category");
}

}  // namespace tessera
