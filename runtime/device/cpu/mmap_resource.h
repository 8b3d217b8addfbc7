// Memory of the operating system in units of huge pages.
//
// Address space is reserved in large pieces without memory behind it; allocate() and extend() put pages into it,
// deallocate() takes them out. So a pool can grow in place and give back the pages of a hole, and what it holds is what
// the process's high-water mark shows. Small requests come from the upper end of a reservation, large ones from the
// lower: the large pool can extend.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "runtime/device/memory_resource.h"

namespace tessera {

class MmapResource final : public MemoryResource {
 public:
  MmapResource() = default;
  ~MmapResource() override;
  MmapResource(const MmapResource&) = delete;
  MmapResource& operator=(const MmapResource&) = delete;

  void* allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  const char* name() const override { return "mmap"; }
  bool growable() const override { return true; }
  void* extend(void* end, std::size_t bytes) override;

 private:
  using Ranges = std::map<std::byte*, std::size_t>;

  void reserve(std::size_t at_least);
  std::byte* take(Ranges::iterator range, std::byte* begin, std::size_t bytes);
  void add_unused(std::byte* begin, std::size_t bytes);

  std::mutex mutex_;
  Ranges reservations_;
  Ranges unused_;  // address space without pages, by address; neighbours are merged
};

}  // namespace tessera
