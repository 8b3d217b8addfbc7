// Where the caching allocator gets its segments from: the operating system, a shared arena of a communicator, or a GPU.
#pragma once

#include <cstddef>

namespace tessera {

class MemoryResource {
 public:
  virtual ~MemoryResource() = default;
  // At least `bytes` bytes, 4 KiB aligned, zero-filled on CPU. Throws DeviceError when there is none.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* data, std::size_t bytes) noexcept = 0;
  virtual const char* name() const = 0;
};

}  // namespace tessera
