// A rank's memory that its peers can map: one anonymous memory file, large in address space and empty until used.
//
// Layout: [0, kControlBytes) control blocks of the groups (control.h), then what shared_memory() hands out. Offsets
// into the file mean the same to every rank; addresses do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/device/memory_resource.h"

namespace tessera::shm {

inline constexpr std::size_t kControlBytes = std::size_t{256} << 20;

// Owner of a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Owner of a mapping.
class Mapping {
 public:
  Mapping() = default;
  // Maps `bytes` of the file: the control part for reading and writing, the rest only for reading unless `own`.
  // Throws DeviceError where address space is short.
  Mapping(const Descriptor& file, std::size_t bytes, bool own);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::byte* base() const { return base_; }
  std::size_t size_bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// The own arena. As a MemoryResource it is thread-safe; memory is there when allocate() returns (a full machine is a
// DeviceError then, not a bus error later) and is gone for all ranks when deallocate() returns.
class Arena final : public MemoryResource {
 public:
  // num_ranks: of this host; together their arenas must fit into an address space.
  explicit Arena(int num_ranks);

  const Descriptor& file() const { return file_; }
  std::byte* base() const { return mapping_.base(); }
  std::size_t size_bytes() const { return mapping_.size_bytes(); }
  // Where [data, data + bytes) lies in the file; nothing where it is not (entirely) arena memory.
  std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const;

  void* allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  const char* name() const override { return "shm"; }
  bool growable() const override { return true; }
  void* extend(void* end, std::size_t bytes) override;

 private:
  using Ranges = std::map<std::size_t, std::size_t>;  // offset → bytes

  void take(Ranges::iterator range, std::size_t begin, std::size_t bytes);
  void add_unused(std::size_t begin, std::size_t bytes);
  void* populate(std::size_t begin, std::size_t bytes);

  Descriptor file_;
  Mapping mapping_;
  std::mutex mutex_;
  Ranges unused_;  // neighbours are merged
};

}  // namespace tessera::shm
