// The caching allocator and the buffers it hands out.
//
// Segments come from a MemoryResource (one per category, the device's by default); freed blocks are split, coalesced
// and reused for the same resource before a new segment is taken. Blocks are 64-byte aligned and rounded up to 64
// bytes. Buffers are stream-ordered: a freed block is reused at once for work of the stream it was allocated on, and
// for others only when every stream named by record_use() has passed the point of the release.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/device/memory_resource.h"
#include "runtime/device/memory_stats.h"
#include "runtime/device/stream.h"

namespace tessera {

class Allocator;

// Move-only owner of a block. Empty when default-constructed, moved from, or of 0 bytes (data() == nullptr).
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  template <typename T>
  std::span<T> span() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

  // The block is also used by work enqueued so far on `stream`.
  void record_use(StreamView stream);
  // Gives the block back now.
  void reset() noexcept;

 private:
  friend class Allocator;
  struct Uses;
  Allocator* owner_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryCategory category_ = MemoryCategory::kWorkspace;
  std::shared_ptr<Uses> uses_;  // never shared; unlike unique_ptr it lets Uses stay incomplete here
};

class Allocator {
 public:
  explicit Allocator(MemoryResource& default_resource);
  ~Allocator();  // every buffer must be gone
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // From now on, blocks of this category come from `resource`, which must outlive the category's blocks and their segments (trim()).
  // Only while no block of the category is live.
  void set_resource(MemoryCategory category, MemoryResource& resource);
  // Refuses (DeviceError, naming category, bytes asked, bytes live and the limit) what would bring the live bytes above it: those that a ledger
  // can predict. Holes are given back before more than the limit is reserved. 0: no limit.
  void set_limit(std::size_t bytes);

  // Thread-safe. 0 bytes give an empty buffer. Contents are undefined.
  Buffer allocate(std::size_t bytes, MemoryCategory category, StreamView stream);

  MemoryStats stats() const;
  void reset_peaks();
  // Returns free segments to their resources.
  void trim();
  // Forgets what set_resource() said, and every segment of it: those resources may go away. Not of a category with live
  // blocks.
  void use_own_resource();

 private:
  friend class Buffer;
  void release(Buffer& buffer) noexcept;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
