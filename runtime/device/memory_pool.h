// The blocks of one size class of one MemoryResource: best fit, split on use, merged on release. Not thread-safe: the
// Allocator locks.
//
// A block is live, pending (released, but a stream may still work on it) or free. What touches is merged when both
// sides are free and come from one segment, or from anywhere in a growable resource.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/device/memory_resource.h"
#include "runtime/device/stream.h"

namespace tessera {

class MemoryPool {
 public:
  static constexpr std::size_t kAlignment = 64;

  // min_segment: the least to ask the resource for.
  MemoryPool(MemoryResource& resource, std::size_t min_segment) : resource_(resource), min_segment_(min_segment) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  MemoryResource& resource() const { return resource_; }
  std::size_t reserved() const { return reserved_; }

  // A block of exactly `bytes` (a multiple of kAlignment) for work of `stream`, or nullptr where none fits: the
  // smallest free block that holds it, else one that only work of the same stream is still to pass.
  std::byte* take(std::size_t bytes, StreamView stream);
  // Adds a segment, or extends the last one, so that take(bytes) will succeed. Throws DeviceError.
  void grow(std::size_t bytes);
  // By how much grow(bytes) would raise reserved().
  std::size_t growth_for(std::size_t bytes) const;
  // uses: what other streams have yet to pass before the block is free.
  void give_back(std::byte* data, std::vector<Event> uses);

  // Frees the pending blocks whose streams have passed; with wait, blocks until all have.
  void collect(bool wait);
  // Gives free memory back to the resource, largest blocks first, until `wanted` bytes are gone or nothing is left that
  // can go; returns how many went.
  std::size_t release_free(std::size_t wanted);

 private:
  enum class BlockState { kLive, kPending, kFree };
  struct Block {
    std::size_t bytes = 0;
    std::byte* segment = nullptr;  // its first byte; nullptr in a growable resource
    BlockState state = BlockState::kFree;
    StreamImpl* stream = nullptr;  // whose work the block was taken for
    Event own;                     // of that stream: at take(), then at give_back()
    std::vector<Event> uses;       // of other streams
  };
  using Blocks = std::map<std::byte*, Block>;

  std::size_t segment_bytes(std::size_t bytes) const;
  void add_range(std::byte* data, std::size_t bytes, std::byte* segment);
  void make_free(Blocks::iterator block);
  bool can_merge(const Blocks::iterator& left, const Blocks::iterator& right) const;
  void split(Blocks::iterator block, std::size_t bytes);
  std::size_t release_block(Blocks::iterator block, std::size_t wanted);

  MemoryResource& resource_;
  std::size_t min_segment_;
  std::size_t reserved_ = 0;
  Blocks blocks_;                                      // by address
  std::set<std::pair<std::size_t, std::byte*>> free_;  // by size, then address
  std::vector<std::byte*> pending_;
  std::map<std::byte*, std::size_t> segments_;  // of a resource that is not growable
};

}  // namespace tessera
