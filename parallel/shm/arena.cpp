#include "parallel/shm/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "runtime/base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older C libraries do not name it
#endif

namespace tessera::shm {
namespace {

constexpr std::size_t kGranule = MemoryResource::kPageGranule;
constexpr std::size_t kGiB = std::size_t{1} << 30;
// Requests below it are segments of small blocks: they come from the upper end, so that large ones can be extended.
constexpr std::size_t kSmall = 2 * kGranule;
// Every rank maps the arenas of all ranks of its host into its 47 bits of addresses; a quarter of them is plenty.
constexpr std::size_t kAllArenas = std::size_t{32} << 40;

std::size_t round_up(std::size_t bytes) {
  return std::max(kGranule, (bytes + kGranule - 1) / kGranule * kGranule);
}

// Four times the machine's memory, so that fragmentation of addresses never matters, within the limits there are.
std::size_t wanted_bytes(int num_ranks) {
  const std::size_t memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t bytes = std::min(4 * memory, kAllArenas / static_cast<std::size_t>(num_ranks));
  rlimit limit{};
  // A longer file than RLIMIT_FSIZE would raise SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bytes = std::min<std::size_t>(bytes, limit.rlim_cur);
  // Where address space is limited, half of it for the arenas.
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<std::size_t>(bytes, limit.rlim_cur / 2 / static_cast<std::size_t>(num_ranks));
  }
  bytes = bytes / kGranule * kGranule;
  if (bytes < kControlBytes + kGiB) {
    throw DeviceError(
        fmt::format("shm: the limits on file size and address space leave {} bytes for shared memory, {} are needed",
                    bytes, kControlBytes + kGiB),
        "ulimit -f and ulimit -v must be larger, or set collectives.backend: mpi");
  }
  return bytes;
}

[[noreturn]] void refuse_mapping(std::size_t bytes) {
  throw DeviceError(fmt::format("shm: cannot map {} bytes: {}", bytes, std::strerror(errno)),
                    "ulimit -v must be unlimited, or set collectives.backend: mpi");
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Mapping::Mapping(const Descriptor& file, std::size_t bytes, bool own) : bytes_(bytes) {
  // Addresses are taken first, and with a granule to spare, so that granules of the file start where huge pages do.
  void* const raw = mmap(nullptr, bytes + kGranule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) refuse_mapping(bytes);
  auto* const first = static_cast<std::byte*>(raw);
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(raw) % kGranule;
  base_ = first + (skew == 0 ? 0 : kGranule - skew);
  if (base_ > first) munmap(first, static_cast<std::size_t>(base_ - first));
  std::byte* const rest = base_ + bytes;
  if (rest < first + bytes + kGranule) munmap(rest, static_cast<std::size_t>(first + bytes + kGranule - rest));
  const int protection = own ? PROT_READ | PROT_WRITE : PROT_READ;
  if (mmap(base_, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
    const int reason = errno;
    munmap(base_, bytes);
    errno = reason;
    refuse_mapping(bytes);
  }
  mprotect(base_, std::min(bytes, kControlBytes), PROT_READ | PROT_WRITE);
  madvise(base_, bytes, MADV_HUGEPAGE);  // advice: most kernels are set to small pages for shared memory
  madvise(base_, bytes, MADV_DONTDUMP);  // a core file of one rank need not hold the memory of all
}

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

Arena::Arena(int num_ranks) {
  const std::size_t bytes = wanted_bytes(num_ranks);
  file_ = Descriptor(memfd_create("tessera-arena", MFD_CLOEXEC));
  if (file_.get() < 0) throw DeviceError(fmt::format("shm: memfd_create: {}", std::strerror(errno)));
  if (ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) {
    throw DeviceError(fmt::format("shm: cannot size a memory file to {} bytes: {}", bytes, std::strerror(errno)));
  }
  mapping_ = Mapping(file_, bytes, true);
  unused_.emplace(kControlBytes, bytes - kControlBytes);
}

std::optional<std::uint64_t> Arena::offset_of(const void* data, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto first = reinterpret_cast<std::uintptr_t>(base());
  if (begin < first || begin - first > size_bytes() || bytes > size_bytes() - (begin - first)) return std::nullopt;
  return begin - first;
}

void* Arena::allocate(std::size_t bytes) {
  bytes = round_up(bytes);
  std::size_t begin = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& range) { return range.second >= bytes; };
    if (bytes < kSmall) {
      const auto last = std::find_if(unused_.rbegin(), unused_.rend(), fits);
      if (last != unused_.rend()) begin = last->first + last->second - bytes;
      if (begin != 0) take(std::prev(last.base()), begin, bytes);
    } else {
      const auto first = std::find_if(unused_.begin(), unused_.end(), fits);
      if (first != unused_.end()) begin = first->first;
      if (begin != 0) take(first, begin, bytes);
    }
  }
  if (begin == 0) {
    throw DeviceError(fmt::format("shm: no {} bytes left in an arena of {} bytes", bytes, size_bytes()),
                      "use more ranks, a smaller model or a smaller micro_batch_size");
  }
  return populate(begin, bytes);
}

void* Arena::extend(void* end, std::size_t bytes) {
  bytes = round_up(bytes);
  const auto begin = static_cast<std::size_t>(static_cast<std::byte*>(end) - base());
  {
    const std::lock_guard lock(mutex_);
    const auto range = unused_.find(begin);
    if (range == unused_.end() || range->second < bytes) return nullptr;
    take(range, begin, bytes);
  }
  return populate(begin, bytes);
}

// With the mutex held: cuts [begin, begin + bytes) out of an unused range.
void Arena::take(Ranges::iterator range, std::size_t begin, std::size_t bytes) {
  const auto [old_begin, old_bytes] = *range;
  unused_.erase(range);
  if (begin > old_begin) unused_.emplace(old_begin, begin - old_begin);
  if (begin + bytes < old_begin + old_bytes) unused_.emplace(begin + bytes, old_begin + old_bytes - begin - bytes);
}

void* Arena::populate(std::size_t begin, std::size_t bytes) {
  std::byte* const data = base() + begin;
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return data;
  if (errno == EINVAL && fallocate(file_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(bytes)) == 0)
    return data;
  const int reason = errno;
  deallocate(data, bytes);
  throw DeviceError(fmt::format("shm: the system refused {} bytes: {}", bytes, std::strerror(reason)),
                    "use more ranks, a smaller model or a smaller micro_batch_size");
}

void Arena::deallocate(void* data, std::size_t bytes) noexcept {
  bytes = round_up(bytes);
  const auto begin = static_cast<std::size_t>(static_cast<std::byte*>(data) - base());
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(bytes));
  const std::lock_guard lock(mutex_);
  add_unused(begin, bytes);
}

void Arena::add_unused(std::size_t begin, std::size_t bytes) {
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

}  // namespace tessera::shm
