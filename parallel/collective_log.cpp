#include "parallel/collective_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "parallel/collective_log_format.h"
#include "parallel/process_state.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

namespace format = log_format;

std::int64_t unix_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The live fields are plain integers in the file and atomics in the writer.
template <typename T>
std::atomic_ref<T> atomic(T& value) {
  return std::atomic_ref<T>(value);
}

format::Header& header(std::byte* data) {
  return *reinterpret_cast<format::Header*>(data);
}
format::Communicator& communicator_at(std::byte* data, int index) {
  return reinterpret_cast<format::Communicator*>(data + sizeof(format::Header))[index];
}
format::Record& record_at(std::byte* data, std::uint64_t slot) {
  return reinterpret_cast<format::Record*>(data + format::kRecordsBegin)[slot];
}

std::uint32_t state_after(int exit_code) {
  return static_cast<std::uint32_t>(exit_code == 0 ? LogState::kEndedOk : LogState::kEndedError);
}

[[noreturn]] void fail(const std::string& path, const std::string& what, int code) {
  throw DeviceError(fmt::format("collective log {}: {}: {}", path, what, std::strerror(code)));
}

[[noreturn]] void fail_for_space(const std::string& path, std::uint64_t bytes, int code) {
  struct statvfs disk {};
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::string free = "unknown";
  if (statvfs(folder.empty() ? "." : folder.c_str(), &disk) == 0)
    free = fmt::format("{}", disk.f_bavail * disk.f_frsize);
  fail(path, fmt::format("{} bytes needed, {} free", bytes, free), code);
}

// Blocks for the whole file, or an error now. 0 or an errno.
int allocate(int descriptor, std::uint64_t bytes) {
  rlimit limit{};
  // Past the limit the kernel sends SIGXFSZ, which ends the process, before it returns the error.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) return EFBIG;
  while (fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
    const std::vector<char> zeros(1U << 20U);
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t part = std::min<std::uint64_t>(zeros.size(), bytes - done);
      const ssize_t written = pwrite(descriptor, zeros.data(), part, static_cast<off_t>(done));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return written < 0 ? errno : ENOSPC;
      done += static_cast<std::uint64_t>(written);
    }
    // A network file system may only now ask for the blocks.
    return fsync(descriptor) == 0 ? 0 : errno;
  }
  return 0;
}

// Whether only this machine can have the file system of a file mounted. Where that is not known: no.
bool is_local(int descriptor) {
  struct statfs system {};
  if (fstatfs(descriptor, &system) != 0) return false;
  switch (static_cast<std::uint32_t>(system.f_type)) {
    case EXT4_SUPER_MAGIC:  // and ext2, ext3
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case 0x2fc12fc1:  // ZFS
      return true;
    default: return false;
  }
}

struct MappedFile {
  int descriptor;  // -1 where nobody needs it: see CollectiveLog::sync
  std::byte* data;
};

// A file of its own at `path`, mapped and touched. Throws with nothing left behind but the file, which the caller removes.
MappedFile map_new_file(const std::string& path, const std::string& final_path, std::uint64_t bytes) {
  // Never an existing file: truncating one that a process still maps would end that process.
  unlink(path.c_str());
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    if (errno == ENOSPC || errno == EDQUOT) fail_for_space(final_path, bytes, errno);
    fail(final_path, "cannot be created", errno);
  }
  if (const int code = allocate(descriptor, bytes); code != 0) {
    close(descriptor);
    fail_for_space(final_path, bytes, code);
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int code = errno;
  const bool keep = data != MAP_FAILED && !is_local(descriptor);
  if (!keep) close(descriptor);
  if (data == MAP_FAILED) fail(final_path, "cannot be mapped", code);
  // MAP_POPULATE would map the pages for reading only, and the first store to each would still fault.
  auto* begin = static_cast<volatile char*>(data);
  for (std::uint64_t at = 0; at < bytes; at += 4096) begin[at] = 0;
  return {keep ? descriptor : -1, static_cast<std::byte*>(data)};
}

void write_header(format::Header& to, const LogOwner& owner, std::uint64_t capacity) {
  std::memcpy(to.magic, format::kMagic, sizeof(to.magic));
  to.version = format::kVersion;
  to.header_bytes = sizeof(format::Header);
  to.communicator_bytes = sizeof(format::Communicator);
  to.record_bytes = sizeof(format::Record);
  to.max_communicators = format::kMaxCommunicators;
  to.capacity = capacity;
  to.run_id = owner.run_id;
  to.world_rank = owner.world_rank;
  to.world_size = owner.world_size;
  to.logical_rank = owner.logical_rank;
  to.dp = owner.at.dp;
  to.pp = owner.at.pp;
  to.tp = owner.at.tp;
  to.mesh_dp = owner.mesh.dp;
  to.mesh_pp = owner.mesh.pp;
  to.mesh_tp = owner.mesh.tp;
  to.mesh_shard_size = owner.mesh.shard_size;
  set_name(to.host, sizeof(to.host), owner.host);
  to.pid = owner.pid;
  to.process_start = owner.process_start;
  to.pid_domain = owner.pid_domain;
  to.unix_ns = owner.unix_ns;
  to.monotonic_ns = owner.monotonic_ns;
  to.check = hash_bytes(&to, offsetof(format::Header, check));
}

}  // namespace

LogOwner LogOwner::this_process() {
  LogOwner owner;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  owner.host = name;
  owner.pid = getpid();
  if (const auto state = process_state(owner.pid)) owner.process_start = state->start_time;
  owner.pid_domain = tessera::pid_domain();
  owner.unix_ns = unix_time_ns();
  owner.monotonic_ns = tessera::monotonic_ns();
  return owner;
}

CollectiveLog::CollectiveLog(std::string path, int descriptor, std::byte* data, std::uint64_t capacity)
    : path_(std::move(path)), descriptor_(descriptor), data_(data), capacity_(capacity) {}

CollectiveLog::~CollectiveLog() {
  munmap(data_, format::file_bytes(capacity_));
  if (descriptor_ >= 0) close(descriptor_);
}

std::unique_ptr<CollectiveLog> CollectiveLog::create(const std::string& path, const LogOwner& owner,
                                                     std::uint64_t capacity) {
  require(capacity > 0 && capacity <= kMaxLogCapacity, fmt::format("collective log: a capacity of {}", capacity));
  const std::string temporary = path + ".tmp";
  std::unique_ptr<CollectiveLog> log;
  try {
    const MappedFile file = map_new_file(temporary, path, format::file_bytes(capacity));
    log.reset(new CollectiveLog(path, file.descriptor, file.data, capacity));
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  write_header(header(log->data_), owner, capacity);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int code = errno;
    unlink(temporary.c_str());
    fail(path, "cannot be created", code);
  }
  return log;
}

int CollectiveLog::add_communicator(const LogCommunicator& communicator) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t index = atomic(header(data_).num_communicators).load(std::memory_order_relaxed);
  require(index < format::kMaxCommunicators,
          fmt::format("collective log: more than {} communicators", format::kMaxCommunicators));
  format::Communicator& to = communicator_at(data_, static_cast<int>(index));
  set_name(to.group, sizeof(to.group), communicator.group);
  set_name(to.channel, sizeof(to.channel), communicator.channel);
  to.group_hash = communicator.group_hash;
  to.size = communicator.size;
  to.position = communicator.position;
  to.check = hash_bytes(&to, offsetof(format::Communicator, check));
  atomic(header(data_).num_communicators).store(index + 1, std::memory_order_release);
  return static_cast<int>(index);
}

CollectiveLog::Handle CollectiveLog::enqueue(int communicator, const CollectiveIdentity& identity,
                                             std::uint64_t fingerprint, std::uint64_t chain) {
  require(communicator >= 0 && communicator < static_cast<int>(format::kMaxCommunicators),
          "collective log: unknown communicator");
  const Handle handle{.index = add_record(communicator, identity, fingerprint, chain),
                      .sequence = identity.sequence,
                      .communicator = communicator,
                      .counted = identity.op != CollectiveOp::kSend && identity.op != CollectiveOp::kRecv};
  if (handle.counted) {
    format::Communicator& counters = communicator_at(data_, communicator);
    atomic(counters.chain).store(chain, std::memory_order_relaxed);
    atomic(counters.num_enqueued).store(identity.sequence + 1, std::memory_order_release);
  }
  return handle;
}

std::uint64_t CollectiveLog::add_record(int communicator, const CollectiveIdentity& identity, std::uint64_t fingerprint,
                                        std::uint64_t chain) {
  const std::uint64_t index = atomic(header(data_).num_added).fetch_add(1, std::memory_order_relaxed);
  format::Record& record = record_at(data_, index % capacity_);
  // Where a whole round of the ring passes while one thread is held up inside a slot, the slot has two claims. The later
  // call gives way if the slot is being written, the earlier one if it has been written: no record is ever torn.
  std::uint64_t before = atomic(record.commit).load(std::memory_order_relaxed);
  if (before == format::kBusy || before > index) return kNoRecord;
  if (!atomic(record.commit).compare_exchange_strong(before, format::kBusy, std::memory_order_acquire))
    return kNoRecord;
  record.communicator = static_cast<std::uint32_t>(communicator);
  record.identity = identity;
  record.fingerprint = fingerprint;
  record.chain = chain;
  record.enqueued_ns = monotonic_ns();
  record.check =
      hash_bytes(reinterpret_cast<const std::byte*>(&record) + format::kCheckedBegin, format::kCheckedBytes, index + 1);
  // Release, so that whoever sees one of these in a copy of the earlier call also sees num_added raised, and drops the
  // copy. What stands above needs no such order: the check covers it. (Thread sanitizer knows no fences.)
  atomic(record.started_ns).store(0, std::memory_order_release);
  atomic(record.finished_ns).store(0, std::memory_order_release);
  atomic(record.waited_ns).store(0, std::memory_order_release);
  atomic(record.commit).store(index + 1, std::memory_order_release);
  return index;
}

void CollectiveLog::started(const Handle& handle) {
  if (handle.counted)
    atomic(communicator_at(data_, handle.communicator).num_started)
        .store(handle.sequence + 1, std::memory_order_release);
  if (handle.index == kNoRecord) return;
  format::Record& record = record_at(data_, handle.index % capacity_);
  // The clock before the look: a thread that is held up after it stores a time from before the slot's later call was
  // enqueued, which a reader drops.
  const std::int64_t now = monotonic_ns();
  if (atomic(record.commit).load(std::memory_order_acquire) != handle.index + 1) return;
  atomic(record.started_ns).store(now, std::memory_order_relaxed);
}

void CollectiveLog::finished(const Handle& handle, std::int64_t waited_ns) {
  if (handle.counted)
    atomic(communicator_at(data_, handle.communicator).num_finished)
        .store(handle.sequence + 1, std::memory_order_release);
  if (handle.index == kNoRecord) return;
  format::Record& record = record_at(data_, handle.index % capacity_);
  const std::int64_t now = monotonic_ns();  // before the look, as in started()
  if (atomic(record.commit).load(std::memory_order_acquire) != handle.index + 1) return;
  atomic(record.waited_ns).store(waited_ns, std::memory_order_relaxed);
  atomic(record.finished_ns).store(now, std::memory_order_release);
}

void CollectiveLog::set_step(std::int64_t step) {
  atomic(header(data_).step).store(step, std::memory_order_relaxed);
}

void CollectiveLog::beat() {
  atomic(header(data_).heartbeat_ns).store(unix_time_ns(), std::memory_order_relaxed);
}

CollectiveLog::Activity CollectiveLog::activity() const {
  Activity activity;
  activity.num_added = atomic(header(data_).num_added).load(std::memory_order_relaxed);
  const std::uint32_t count = atomic(header(data_).num_communicators).load(std::memory_order_acquire);
  for (std::uint32_t index = 0; index < count; ++index) {
    format::Communicator& counters = communicator_at(data_, static_cast<int>(index));
    // Read in this order, none is ahead of the next.
    const std::uint64_t finished = atomic(counters.num_finished).load(std::memory_order_acquire);
    const std::uint64_t started = atomic(counters.num_started).load(std::memory_order_acquire);
    const std::uint64_t enqueued = atomic(counters.num_enqueued).load(std::memory_order_acquire);
    activity.num_started += started;
    activity.num_finished += finished;
    // They are sequence numbers, and the first of them may be well above 1: calls are older than the log.
    activity.num_queued += started > 0 ? enqueued - started : std::min<std::uint64_t>(enqueued, 1);
    activity.num_in_progress += finished > 0 ? started - finished : std::min<std::uint64_t>(started, 1);
  }
  return activity;
}

void CollectiveLog::sync() {
  if (descriptor_ < 0) return;
  // Not msync: with MS_ASYNC Linux does nothing, and with MS_SYNC it waits for the server, which may be gone. The whole
  // file, since the kernel knows which of its pages changed. An error is that of a file system which is left to its pace.
  sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

void CollectiveLog::end(int exit_code, std::string_view message, int culprit_world_rank) {
  const std::lock_guard lock(mutex_);
  format::Header& to = header(data_);
  message.copy(to.message, sizeof(to.message));
  atomic(to.culprit).store(culprit_world_rank < 0 ? 0 : culprit_world_rank + 1, std::memory_order_relaxed);
  atomic(to.exit_code).store(exit_code, std::memory_order_relaxed);
  atomic(to.heartbeat_ns).store(unix_time_ns(), std::memory_order_relaxed);
  atomic(to.state).store(state_after(exit_code), std::memory_order_release);
}

void CollectiveLog::mark_ended(int exit_code) noexcept {
  static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free &&
                std::atomic_ref<std::int32_t>::is_always_lock_free);
  format::Header& to = header(data_);
  if (atomic(to.state).load(std::memory_order_relaxed) != static_cast<std::uint32_t>(LogState::kRunning)) return;
  atomic(to.exit_code).store(exit_code, std::memory_order_relaxed);
  atomic(to.state).store(state_after(exit_code), std::memory_order_release);
}

}  // namespace tessera
