#include "runtime/device/cpu/mmap_resource.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::size_t kGranule = MemoryResource::kPageGranule;
constexpr std::size_t kReservation = std::size_t{64} << 30;
// Requests below it are segments of small blocks.
constexpr std::size_t kSmall = 2 * kGranule;

std::size_t round_up(std::size_t bytes) {
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

void* map(void* at, std::size_t bytes, int protection, int extra_flags) {
  return mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
}

}  // namespace

MmapResource::~MmapResource() {
  for (const auto& [begin, bytes] : reservations_) munmap(begin, bytes);
}

// Called with the mutex held, as the other private functions.
void MmapResource::reserve(std::size_t at_least) {
  std::size_t bytes = std::max(kReservation, round_up(at_least)) + kGranule;
  void* raw = map(nullptr, bytes, PROT_NONE, MAP_NORESERVE);
  if (raw == MAP_FAILED) {  // a limit on address space: take no more than needed
    bytes = round_up(at_least) + kGranule;
    raw = map(nullptr, bytes, PROT_NONE, MAP_NORESERVE);
  }
  if (raw == MAP_FAILED) {
    throw DeviceError(fmt::format("memory: no {} bytes of address space: {}", at_least, std::strerror(errno)),
                      "see the limit that ulimit -v prints");
  }
  auto* const begin = static_cast<std::byte*>(raw);
  reservations_.emplace(begin, bytes);
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(begin) % kGranule;
  unused_.emplace(begin + (skew == 0 ? 0 : kGranule - skew), (bytes - kGranule));
}

std::byte* MmapResource::take(Ranges::iterator range, std::byte* begin, std::size_t bytes) {
  if (map(begin, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) == MAP_FAILED) {
    throw DeviceError(fmt::format("memory: the system refused {} bytes: {}", bytes, std::strerror(errno)),
                      "use more ranks, a smaller model or a smaller micro_batch_size");
  }
  madvise(begin, bytes, MADV_HUGEPAGE);  // advice only: a kernel without huge pages is slower, not wrong
  std::byte* const old_begin = range->first;
  const std::size_t old_bytes = range->second;
  unused_.erase(range);
  if (begin > old_begin) unused_.emplace(old_begin, static_cast<std::size_t>(begin - old_begin));
  std::byte* const end = begin + bytes;
  std::byte* const old_end = old_begin + old_bytes;
  if (end < old_end) unused_.emplace(end, static_cast<std::size_t>(old_end - end));
  return begin;
}

void* MmapResource::allocate(std::size_t bytes) {
  bytes = round_up(bytes);
  const std::lock_guard lock(mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (bytes < kSmall) {
      for (auto range = unused_.rbegin(); range != unused_.rend(); ++range) {
        if (range->second < bytes) continue;
        return take(std::prev(range.base()), range->first + (range->second - bytes), bytes);
      }
    } else {
      for (auto range = unused_.begin(); range != unused_.end(); ++range) {
        if (range->second >= bytes) return take(range, range->first, bytes);
      }
    }
    if (attempt == 0) reserve(bytes);
  }
  throw InternalError("internal: a fresh reservation holds what it was made for");
}

void* MmapResource::extend(void* end, std::size_t bytes) {
  bytes = round_up(bytes);
  auto* const begin = static_cast<std::byte*>(end);
  const std::lock_guard lock(mutex_);
  const auto range = unused_.find(begin);
  if (range == unused_.end() || range->second < bytes) return nullptr;
  return take(range, begin, bytes);
}

void MmapResource::deallocate(void* data, std::size_t bytes) noexcept {
  bytes = round_up(bytes);
  auto* begin = static_cast<std::byte*>(data);
  const std::lock_guard lock(mutex_);
  // Replacing the pages by a reservation is one call that cannot leave a hole for others to map into.
  if (map(begin, bytes, PROT_NONE, MAP_FIXED | MAP_NORESERVE) == MAP_FAILED) {
    madvise(begin, bytes, MADV_DONTNEED);  // out of mappings: the pages go all the same
  }
  add_unused(begin, bytes);
}

void MmapResource::add_unused(std::byte* begin, std::size_t bytes) {
  auto next = unused_.upper_bound(begin);
  if (next != unused_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = unused_.erase(next);
  }
  if (next != unused_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += bytes;
      return;
    }
  }
  unused_.emplace(begin, bytes);
}

}  // namespace tessera
