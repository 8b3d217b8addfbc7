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

  // A growable resource hands out ranges of pages: ranges that touch may be used as one, and any part of them on
  // kPageGranule boundaries can be given back. Others get back exactly what they gave.
  virtual bool growable() const { return false; }
  // Growable resources: the `bytes` (a multiple of kPageGranule) that begin at `end`, the end of an earlier range, or
  // nullptr where they are taken.
  virtual void* extend(void* end, std::size_t bytes) { return nullptr; }
  static constexpr std::size_t kPageGranule = std::size_t{2} << 20;  // a huge page, so that none is ever cut
};

}  // namespace tessera
