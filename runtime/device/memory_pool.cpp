#include "runtime/device/memory_pool.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "runtime/base/error.h"
#include "runtime/device/event_state.h"
#include "runtime/device/forbidden_memory.h"

namespace tessera {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

bool passed(const Event& own, const std::vector<Event>& uses) {
  return own.query() && std::all_of(uses.begin(), uses.end(), [](const Event& use) { return use.query(); });
}

// The failure of a stream is not the allocator's business: a dropped use is over too.
void wait_for(const Event& event) noexcept {
  try {
    event.synchronize();
  } catch (...) {
  }
}

}  // namespace

MemoryPool::~MemoryPool() {
  collect(/*wait=*/true);
  release_free(reserved_);
}

std::size_t MemoryPool::segment_bytes(std::size_t bytes) const {
  constexpr std::size_t kUnit = std::size_t{64} << 10;
  const std::size_t least = std::max(bytes, min_segment_);
  return round_up(least, resource_.growable() ? MemoryResource::kPageGranule : kUnit);
}

std::byte* MemoryPool::take(std::size_t bytes, StreamView stream) {
  Blocks::iterator block = blocks_.end();
  const auto fit = free_.lower_bound({bytes, nullptr});
  if (fit != free_.end()) {
    block = blocks_.find(fit->second);
    require(block != blocks_.end() && block->second.bytes == fit->first, "every free block is a block");
    free_.erase(fit);
  } else {
    for (const std::byte* candidate : pending_) {
      const auto found = blocks_.find(const_cast<std::byte*>(candidate));
      require(found != blocks_.end(), "every pending block is a block");
      const bool usable =
          found->second.stream == stream.impl() && found->second.bytes >= bytes && passed(Event(), found->second.uses);
      if (usable && (block == blocks_.end() || found->second.bytes < block->second.bytes)) block = found;
    }
    if (block == blocks_.end()) return nullptr;
    std::erase(pending_, block->first);
  }
  split(block, bytes);
  block->second.state = BlockState::kLive;
  block->second.stream = stream.impl();
  block->second.own = stream.record();
  block->second.uses.clear();
  return block->first;
}

// Leaves `bytes` in the block, which is in neither list; the rest becomes a block in the state of the whole.
void MemoryPool::split(Blocks::iterator block, std::size_t bytes) {
  Block& whole = block->second;
  if (whole.bytes == bytes) return;
  Block rest = whole;
  rest.bytes = whole.bytes - bytes;
  whole.bytes = bytes;
  std::byte* const at = block->first + bytes;
  if (rest.state == BlockState::kPending) {
    pending_.push_back(at);
  } else {
    free_.emplace(rest.bytes, at);
  }
  blocks_.emplace(at, std::move(rest));
}

std::size_t MemoryPool::growth_for(std::size_t bytes) const {
  if (resource_.growable() && !blocks_.empty()) {
    const Block& last = blocks_.rbegin()->second;
    if (last.state == BlockState::kFree && last.bytes < bytes) return segment_bytes(bytes - last.bytes);
  }
  return segment_bytes(bytes);
}

void MemoryPool::grow(std::size_t bytes) {
  if (resource_.growable() && !blocks_.empty()) {
    const auto& [data, last] = *blocks_.rbegin();
    const std::size_t have = last.state == BlockState::kFree ? last.bytes : 0;
    std::byte* const end = data + last.bytes;
    const std::size_t more = segment_bytes(bytes - std::min(have, bytes));
    if (resource_.extend(end, more) != nullptr) {
      add_range(end, more, nullptr);
      return;
    }
  }
  const std::size_t size = segment_bytes(bytes);
  auto* const data = static_cast<std::byte*>(resource_.allocate(size));
  if (!resource_.growable()) segments_.emplace(data, size);
  add_range(data, size, resource_.growable() ? nullptr : data);
}

void MemoryPool::add_range(std::byte* data, std::size_t bytes, std::byte* segment) {
  reserved_ += bytes;
  Block block;
  block.bytes = bytes;
  block.segment = segment;
  const auto [added, fresh] = blocks_.emplace(data, std::move(block));
  require(fresh, "the resource hands out memory once");
  make_free(added);
}

bool MemoryPool::can_merge(const Blocks::iterator& left, const Blocks::iterator& right) const {
  return left->second.state == BlockState::kFree && right->second.state == BlockState::kFree &&
         left->second.segment == right->second.segment && left->first + left->second.bytes == right->first;
}

void MemoryPool::make_free(Blocks::iterator block) {
  block->second.state = BlockState::kFree;
  block->second.stream = nullptr;
  block->second.own = Event();
  block->second.uses.clear();
  forbid_memory(block->first, block->second.bytes);
  if (const auto next = std::next(block); next != blocks_.end() && can_merge(block, next)) {
    free_.erase({next->second.bytes, next->first});
    block->second.bytes += next->second.bytes;
    blocks_.erase(next);
  }
  if (block != blocks_.begin()) {
    const auto previous = std::prev(block);
    if (can_merge(previous, block)) {
      free_.erase({previous->second.bytes, previous->first});
      previous->second.bytes += block->second.bytes;
      blocks_.erase(block);
      block = previous;
    }
  }
  free_.emplace(block->second.bytes, block->first);
}

void MemoryPool::give_back(std::byte* data, std::vector<Event> uses) {
  const auto block = blocks_.find(data);
  require(block != blocks_.end() && block->second.state == BlockState::kLive, "a released block is live");
  block->second.uses = std::move(uses);
  if (block->second.own.state()) block->second.own = block->second.own.state()->refreshed();
  if (passed(block->second.own, block->second.uses)) {
    make_free(block);
  } else {
    block->second.state = BlockState::kPending;
    pending_.push_back(data);
  }
}

void MemoryPool::collect(bool wait) {
  std::size_t kept = 0;
  for (std::byte* const data : pending_) {
    const auto found = blocks_.find(data);
    require(found != blocks_.end(), "every pending block is a block");
    Block& block = found->second;
    if (wait) {
      wait_for(block.own);
      for (const Event& use : block.uses) wait_for(use);
    }
    if (passed(block.own, block.uses)) {
      make_free(found);
    } else {
      pending_[kept++] = data;
    }
  }
  pending_.resize(kept);
}

std::size_t MemoryPool::release_free(std::size_t wanted) {
  std::size_t released = 0;
  // From large to small; release_block() changes the list, so the walk starts again below the last size it has seen.
  std::pair<std::size_t, std::byte*> below = {~std::size_t{0}, nullptr};
  while (released < wanted) {
    auto candidate = free_.lower_bound(below);
    if (candidate == free_.begin()) break;
    --candidate;
    below = *candidate;
    const auto block = blocks_.find(candidate->second);
    require(block != blocks_.end(), "every free block is a block");
    released += release_block(block, wanted - released);
  }
  return released;
}

std::size_t MemoryPool::release_block(Blocks::iterator block, std::size_t wanted) {
  std::byte* begin = block->first;
  const std::size_t bytes = block->second.bytes;
  std::byte* const block_begin = begin;
  std::byte* const block_end = begin + bytes;
  std::byte* end = block_end;
  if (resource_.growable()) {
    constexpr std::size_t kGranule = MemoryResource::kPageGranule;
    const auto first = round_up(reinterpret_cast<std::uintptr_t>(begin), kGranule);
    const auto last = reinterpret_cast<std::uintptr_t>(end) / kGranule * kGranule;
    if (first >= last) return 0;
    begin = reinterpret_cast<std::byte*>(first);
    end = reinterpret_cast<std::byte*>(last);
    const std::size_t keep_from = static_cast<std::size_t>(end - begin);
    const std::size_t going = std::min(keep_from, round_up(wanted, kGranule));
    begin = end - going;
  } else {
    if (segments_.at(block->second.segment) != bytes) return 0;  // something of the segment is still in use
    segments_.erase(begin);
  }
  const std::size_t going = static_cast<std::size_t>(end - begin);
  free_.erase({bytes, block_begin});
  allow_memory(begin, going);
  resource_.deallocate(begin, going);
  reserved_ -= going;
  if (end < block_end) {
    Block tail = block->second;
    tail.bytes = static_cast<std::size_t>(block_end - end);
    free_.emplace(tail.bytes, end);
    blocks_.emplace(end, std::move(tail));
  }
  if (block_begin < begin) {
    block->second.bytes = static_cast<std::size_t>(begin - block_begin);
    free_.emplace(block->second.bytes, block_begin);
  } else {
    blocks_.erase(block);
  }
  return going;
}

}  // namespace tessera
