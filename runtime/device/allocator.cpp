#include "runtime/device/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/device/event_state.h"
#include "runtime/device/forbidden_memory.h"
#include "runtime/device/memory_pool.h"

namespace tessera {
namespace {

// Blocks below it live in segments of their own, so that a long-lived norm weight does not cut a hole for activations
// in two.
constexpr std::size_t kSmallBlock = std::size_t{1} << 20;
// Far above what a machine has, far below where sums of sizes would wrap.
constexpr std::size_t kLargestBlock = std::size_t{1} << 56;
constexpr std::size_t kSmallSegment = MemoryResource::kPageGranule;

std::size_t block_bytes(std::size_t bytes) {
  return (bytes + MemoryPool::kAlignment - 1) / MemoryPool::kAlignment * MemoryPool::kAlignment;
}

std::size_t index_of(MemoryCategory category) {
  return static_cast<std::size_t>(category);
}

}  // namespace

struct Buffer::Uses {
  std::vector<std::pair<StreamImpl*, Event>> events;
};

struct Allocator::State {
  // The two size classes of one resource.
  struct Pools {
    explicit Pools(MemoryResource& resource) : small(resource, kSmallSegment), large(resource, 0) {}
    MemoryPool small;
    MemoryPool large;
  };

  explicit State(MemoryResource& resource) : default_resource(resource) { resources.fill(&resource); }

  MemoryResource& default_resource;
  mutable std::mutex mutex;
  std::array<MemoryResource*, kNumMemoryCategories> resources{};
  std::map<MemoryResource*, Pools> pools;
  std::size_t limit = 0;
  MemoryStats stats;

  MemoryPool& pool_for(MemoryCategory category, std::size_t bytes) {
    MemoryResource& resource = *resources[index_of(category)];
    Pools& both = pools.try_emplace(&resource, resource).first->second;
    return bytes < kSmallBlock ? both.small : both.large;
  }

  std::size_t reserved() const {
    std::size_t sum = 0;
    for (const auto& [resource, both] : pools) sum += both.small.reserved() + both.large.reserved();
    return sum;
  }

  void update_reserved() {
    stats.reserved = static_cast<std::int64_t>(reserved());
    stats.reserved_peak = std::max(stats.reserved_peak, stats.reserved);
  }

  // A resource that nobody uses any longer may go away: nothing of it is kept.
  void forget_unused_resources() {
    std::erase_if(pools,
                  [&](const auto& entry) { return std::ranges::find(resources, entry.first) == resources.end(); });
    update_reserved();
  }

  void release_all(bool wait) {
    for (auto& [resource, both] : pools) {
      for (MemoryPool* pool : {&both.small, &both.large}) {
        pool->collect(wait);
        pool->release_free(pool->reserved());
      }
    }
    update_reserved();
  }

  // What is held beyond the live bytes stays small: holes that the new block did not fit into go back to the system.
  // Some slack is kept so that a repeating pattern of blocks does not fault the same pages in again and again.
  void release_excess() {
    constexpr std::size_t kLeastSlack = std::size_t{8} << 20;
    constexpr std::size_t kSlackShare = 40;  // 2.5 %
    const auto live = static_cast<std::size_t>(stats.total.allocated);
    const std::size_t allowed = live + std::max(kLeastSlack, live / kSlackShare);
    std::size_t held = reserved();
    for (auto& [resource, both] : pools) {
      if (held <= allowed) break;
      held -= both.large.release_free(held - allowed);
    }
  }

  std::byte* take(MemoryPool& pool, std::size_t bytes, MemoryCategory category, StreamView stream) {
    if (limit != 0 && static_cast<std::size_t>(stats.total.allocated) + bytes > limit) refuse(bytes, category);
    pool.collect(/*wait=*/false);
    if (std::byte* const data = pool.take(bytes, stream)) return data;
    // What is held beyond live bytes goes back before more than the limit is held; what fragments keep stays.
    if (limit != 0 && reserved() + pool.growth_for(bytes) > limit) {
      release_all(/*wait=*/true);
      if (std::byte* const data = pool.take(bytes, stream)) return data;
    }
    try {
      pool.grow(bytes);
    } catch (const DeviceError&) {
      // The resource may have room once the holes are back.
      release_all(/*wait=*/true);
      pool.grow(bytes);
    }
    return pool.take(bytes, stream);
  }

  [[noreturn]] void refuse(std::size_t bytes, MemoryCategory category) const {
    throw DeviceError(fmt::format("memory: {} bytes of {} do not fit: {} bytes live, {} reserved, limit {}", bytes,
                                  name_of(category), stats.total.allocated, reserved(), limit),
                      "raise device.memory_limit, use more ranks, or a smaller batch.micro_batch_size");
  }

  void count(MemoryCategory category, std::int64_t bytes) {
    MemoryCounts& own = stats.by_category[index_of(category)];
    own.allocated += bytes;
    own.allocated_peak = std::max(own.allocated_peak, own.allocated);
    stats.total.allocated += bytes;
    if (stats.total.allocated > stats.total.allocated_peak) note_peak();
  }

  void note_peak() {
    stats.total.allocated_peak = stats.total.allocated;
    for (std::size_t i = 0; i < stats.at_peak.size(); ++i) stats.at_peak[i] = stats.by_category[i].allocated;
  }
};

Allocator::Allocator(MemoryResource& default_resource) : state_(std::make_unique<State>(default_resource)) {}

Allocator::~Allocator() {
  if (state_->stats.total.allocated != 0) {
    log::error(
        fmt::format("memory: {} bytes are still in use at the end of the allocator", state_->stats.total.allocated));
  }
}

void Allocator::set_resource(MemoryCategory category, MemoryResource& resource) {
  const std::lock_guard lock(state_->mutex);
  require(state_->stats.by_category[index_of(category)].allocated == 0,
          "the resource of a category changes only while none of its blocks is live");
  state_->resources[index_of(category)] = &resource;
  state_->forget_unused_resources();
}

void Allocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
}

Buffer Allocator::allocate(std::size_t bytes, MemoryCategory category, StreamView stream) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > kLargestBlock) {
    throw DeviceError(fmt::format("memory: {} bytes of {} are more than any address space", bytes, name_of(category)),
                      "check the sizes in the model section");
  }
  const std::size_t rounded = block_bytes(bytes);
  const std::lock_guard lock(state_->mutex);
  MemoryPool& pool = state_->pool_for(category, rounded);
  const std::size_t before = pool.reserved();
  std::byte* const data = state_->take(pool, rounded, category, stream);
  state_->count(category, static_cast<std::int64_t>(rounded));
  if (pool.reserved() > before) {
    state_->release_excess();
    state_->update_reserved();
  }
  allow_as_undefined(data, bytes);
  buffer.owner_ = this;
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  buffer.category_ = category;
  return buffer;
}

void Allocator::release(Buffer& buffer) noexcept {
  std::vector<Event> uses;
  if (buffer.uses_) {
    for (const auto& [stream, event] : buffer.uses_->events) uses.push_back(event.state()->refreshed());
  }
  const std::size_t rounded = block_bytes(buffer.bytes_);
  const std::lock_guard lock(state_->mutex);
  state_->pool_for(buffer.category_, rounded).give_back(static_cast<std::byte*>(buffer.data_), std::move(uses));
  state_->count(buffer.category_, -static_cast<std::int64_t>(rounded));
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

void Allocator::reset_peaks() {
  const std::lock_guard lock(state_->mutex);
  for (MemoryCounts& counts : state_->stats.by_category) counts.allocated_peak = counts.allocated;
  state_->note_peak();
  state_->stats.reserved_peak = state_->stats.reserved;
}

void Allocator::trim() {
  const std::lock_guard lock(state_->mutex);
  state_->release_all(/*wait=*/false);
}

void Allocator::use_own_resource() {
  const std::lock_guard lock(state_->mutex);
  for (std::size_t i = 0; i < state_->resources.size(); ++i) {
    if (state_->stats.by_category[i].allocated == 0) state_->resources[i] = &state_->default_resource;
  }
  state_->forget_unused_resources();
  state_->release_all(/*wait=*/false);
}

Buffer::Buffer(Buffer&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      category_(other.category_),
      uses_(std::move(other.uses_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  owner_ = std::exchange(other.owner_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  category_ = other.category_;
  uses_ = std::move(other.uses_);
  return *this;
}

Buffer::~Buffer() {
  reset();
}

void Buffer::record_use(StreamView stream) {
  if (!data_) return;
  Event event = stream.record();
  if (!event.state()) return;  // an inline stream: its work is done
  if (!uses_) uses_ = std::make_unique<Uses>();
  for (auto& [known, latest] : uses_->events) {
    if (known == stream.impl()) {
      latest = std::move(event);
      return;
    }
  }
  uses_->events.emplace_back(stream.impl(), std::move(event));
}

void Buffer::reset() noexcept {
  if (owner_ != nullptr) owner_->release(*this);
  owner_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
  uses_.reset();
}

}  // namespace tessera
