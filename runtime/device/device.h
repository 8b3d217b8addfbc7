// A device: streams and memory behind one interface. cpu/ is the embedded default; cuda/ comes as its sibling.
#pragma once

#include <string>

#include "runtime/device/allocator.h"
#include "runtime/device/stream.h"

namespace tessera {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };
std::string_view name_of(DeviceKind kind);

enum class StreamMode : std::uint8_t {
  kCompute,  // CPU: inline on the caller's thread
  kQueue,    // CPU: a thread of its own
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual Stream create_stream(std::string name, StreamMode mode) = 0;
  virtual Allocator& allocator() = 0;
};

}  // namespace tessera
