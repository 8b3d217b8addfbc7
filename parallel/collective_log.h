// The collective log of one rank: what it called, as a ring of fixed-size records in a mapped file, so that it is there
// after kill -9. docs/collective-log.md is the format.
//
//   auto log = CollectiveLog::create(path, owner);
//   int dp = log->add_communicator({.group = "dp:0", .channel = "gather", .size = 4, .position = 1, .group_hash = h});
//   auto call = log->enqueue(dp, identity, fingerprint, chain);   // host thread
//   log->started(call); … log->finished(call, waited_ns);         // the stream's thread
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collective_identity.h"
#include "parallel/mesh.h"

namespace tessera {

inline constexpr std::uint64_t kDefaultLogCapacity = 16'384;  // records: 3 MiB
inline constexpr std::uint64_t kMaxLogCapacity = 1'048'576;

enum class LogState : std::uint32_t { kRunning, kEndedOk, kEndedError };

// Whose log it is. Never changes.
struct LogOwner {
  std::uint64_t run_id = 0;  // equal on all ranks of one start: tells logs that an earlier start left
  int world_rank = 0, world_size = 1, logical_rank = 0;
  Coordinates at;
  MeshShape mesh;
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t process_start = 0;  // see ProcessState
  std::uint64_t pid_domain = 0;
  // Both clocks, read together: unix_ns + (t - monotonic_ns) is the Unix time of a stamp t.
  std::int64_t unix_ns = 0, monotonic_ns = 0;
  std::int64_t unix_time(std::int64_t stamp) const { return unix_ns + (stamp - monotonic_ns); }
  // Host, pid, start time and clocks of the calling process; ranks are the caller's to fill in.
  static LogOwner this_process();
  friend bool operator==(const LogOwner&, const LogOwner&) = default;
};

struct LogCommunicator {
  std::string group;    // at most 32 bytes
  std::string channel;  // the stream's name, since a group may have a communicator per stream; at most 16 bytes
  int size = 1;
  int position = 0;  // group rank
  std::uint64_t group_hash = 0;
};

// Writer. All functions may be called by several threads at once; calls of one communicator come from one thread per
// function. enqueue, started, finished, set_step and beat take no lock and make no system call.
class CollectiveLog {
 public:
  // Replaces the file at path as a whole when the new one is complete: allocated, mapped and touched, so that a full disk
  // is a DeviceError here, naming path, bytes needed and free, and never a signal later.
  static std::unique_ptr<CollectiveLog> create(const std::string& path, const LogOwner& owner,
                                               std::uint64_t capacity = kDefaultLogCapacity);
  // Leaves the state as it is: a log that nobody ended is that of a process that died.
  ~CollectiveLog();
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;

  // The index to enqueue with. InternalError beyond 64.
  int add_communicator(const LogCommunicator& communicator);

  static constexpr std::uint64_t kNoRecord = ~std::uint64_t{0};
  // One recorded call. Stamps of a call whose slot has been used again are dropped.
  struct Handle {
    std::uint64_t index = kNoRecord;
    std::uint64_t sequence = 0;
    std::int32_t communicator = -1;
    bool counted = false;  // not send, recv: those have sequences of their own
  };
  // chain: after this call (of a send or recv, unchanged).
  Handle enqueue(int communicator, const CollectiveIdentity& identity, std::uint64_t fingerprint, std::uint64_t chain);
  void started(const Handle& handle);
  // waited_ns: how much of the call was waiting for peers; 0: unknown.
  void finished(const Handle& handle, std::int64_t waited_ns = 0);

  void set_step(std::int64_t step);
  void beat();
  // Starts to write what changed since the last call to the file system, and does not wait for it: for a thread that does
  // nothing else, about as often as it beats. Only where other hosts may read the file; on a local file system every
  // reader sees the pages themselves, and nothing is done.
  void sync();
  // Once, at the end. Exit code 0 is kEndedOk. Messages are cut at 512 bytes. culprit: the world rank whose error it is,
  // where all ranks end with the error of one; -1: not told.
  void end(int exit_code, std::string_view message = {}, int culprit_world_rank = -1);
  // The same for a signal handler that ends the process: without a message, a lock, memory of its own or a system call.
  // Changes nothing where end() is through.
  void mark_ended(int exit_code) noexcept;

  // What moves while the rank does: equal to an earlier one where no call was made, begun or ended since. Counts of all
  // communicators; send and recv show in num_added alone.
  struct Activity {
    std::uint64_t num_added = 0, num_started = 0, num_finished = 0;
    std::uint64_t num_queued = 0;       // made, not begun
    std::uint64_t num_in_progress = 0;  // begun, not ended
    friend bool operator==(const Activity&, const Activity&) = default;
  };
  Activity activity() const;

  const std::string& path() const { return path_; }

 private:
  CollectiveLog(std::string path, int descriptor, std::byte* data, std::uint64_t capacity);
  // The index of the record, or kNoRecord where its slot was taken.
  std::uint64_t add_record(int communicator, const CollectiveIdentity& identity, std::uint64_t fingerprint,
                           std::uint64_t chain);

  std::string path_;
  int descriptor_;  // of a file that other hosts may read; else -1
  std::byte* data_;
  std::uint64_t capacity_;
  std::mutex mutex_;  // add_communicator, end
};

// What a reader finds.
struct LoggedCommunicator : LogCommunicator {
  // Of collectives (not send, recv): calls 0 … num_enqueued - 1 were enqueued, and so on.
  std::uint64_t num_enqueued = 0, num_started = 0, num_finished = 0;
  std::uint64_t chain = 0;  // after the last one enqueued
};

struct LoggedCall {
  std::uint64_t index = 0;  // among all calls of the rank, from 0
  int communicator = 0;
  CollectiveIdentity identity;
  std::uint64_t fingerprint = 0, chain = 0;
  std::int64_t enqueued_ns = 0, started_ns = 0, finished_ns = 0;  // monotonic; 0: not yet
  std::int64_t waited_ns = 0;                                     // 0: unknown
};

struct RankLog {
  std::string path;
  LogOwner owner;
  std::uint64_t capacity = 0;
  LogState state = LogState::kRunning;
  int exit_code = 0;
  std::string message;
  int culprit = -1;               // world rank whose error it ended with; -1: the log does not tell
  std::int64_t heartbeat_ns = 0;  // Unix time; 0: none yet
  std::int64_t step = 0;
  std::uint64_t num_added = 0;
  std::vector<LoggedCommunicator> communicators;
  std::vector<LoggedCall> calls;  // ascending index; the newest that the ring holds
  std::uint64_t num_damaged = 0;  // records that are there but make no sense
};

// Reads a log, also one that is being written or that ends early. DataError naming the path where it is no collective
// log of this version or its header is damaged; single records that are damaged, or overwritten while they are read,
// are left out. max_calls: the newest so many, to bound the memory that thousands of logs take.
RankLog read_collective_log(const std::string& path, std::uint64_t max_calls = kMaxLogCapacity);

}  // namespace tessera
