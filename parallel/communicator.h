// Collectives of one group: one options struct and one function per collective, all asynchronous on a stream, all
// returning a Work.
//
// The public functions validate, record the call, handle the trivial case (a group of one copies and is done) and
// dispatch to the backend (shm/, mpi/, threads/; nccl/ later). Calls of one communicator match by order alone; every
// rank makes the same calls in the same order. Floating-point sums follow ops::tree_sum over the ranks of the group in
// group order, on every backend: same bits. One thread (stream) uses a communicator at a time.
//
// Memory: input must stay unchanged and output untouched from the call until the Work is done. Where the backend has
// shared memory (CommunicatorFactory::shared_memory) and buffers come from it, peers read them where they lie; other
// memory is staged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collective_identity.h"
#include "parallel/collective_log.h"
#include "parallel/mesh.h"
#include "runtime/base/dtype.h"
#include "runtime/device/memory_resource.h"
#include "runtime/device/stream.h"

namespace tessera {

// What the call is for. Part of the identity of a call; never influences data.
struct CollectiveTag {
  std::string what;   // "root", "block.3", "norm"; a unit or a decision
  std::string phase;  // "forward", "backward", "update", "evaluate", …
  std::int64_t step = 0;
  int micro_batch = -1;  // -1: none
};

// One call of this rank.
struct CollectiveCall {
  std::string_view group;    // "dp:0"
  std::string_view channel;  // the stream that the communicator belongs to
  const CollectiveIdentity& identity;
};

// Sees every call before it is issued, on the host thread that makes it. May throw to refuse the call.
class CollectiveObserver {
 public:
  virtual ~CollectiveObserver() = default;
  virtual void on_call(const CollectiveCall& call) = 0;
};

// One call that is done, as its stream's thread saw it. Times: CLOCK_MONOTONIC, ns; waited: of the time from started to
// finished, what was spent waiting for peers.
struct TimedCall {
  std::string_view group, channel;
  int group_size = 1;
  const CollectiveIdentity& identity;
  std::int64_t enqueued_ns = 0, started_ns = 0, finished_ns = 0, waited_ns = 0;
};

// Sees calls after they ended well, with their times.
class CallRecorder {
 public:
  virtual ~CallRecorder() = default;
  // Asked when a call is made, on the host thread: whether it will want to see this one. No clock is read for others.
  virtual bool wants_calls() const = 0;
  // On the thread of the call's stream, before anybody who waits for the call goes on.
  virtual void on_finished(const TimedCall& call) = 0;
};

// When members find out that they made different calls.
enum class FingerprintLevel : std::uint8_t {
  kOff,     // never
  kLog,     // calls are recorded; `tessera inspect` compares them
  kStep,    // the histories are compared by compare_history(), once a step
  kStrict,  // before the data of a call may be used
};

// A wrong program, rehearsed (chaos): what is to happen to a call before anything else sees it.
enum class CallFault : std::uint8_t { kNone, kSkip, kExtra, kWrongDType, kWrongCount, kWrongReduceOp, kWrongRoot };
class CallFaults {
 public:
  virtual ~CallFaults() = default;
  virtual CallFault next(std::string_view group, CollectiveOp op, const CollectiveTag& tag) = 0;
};

// What surrounds the calls of one communicator. All members give the same channel and level.
struct CommunicatorHooks {
  std::string channel;
  FingerprintLevel fingerprint = FingerprintLevel::kStrict;
  std::shared_ptr<CollectiveObserver> observer;
  std::shared_ptr<CallFaults> faults;
  std::shared_ptr<CallRecorder> recorder;  // at every level of fingerprint
  // One line on the state of the whole run, for the error of a rank that waited too long or found a broken history; may be empty.
  std::function<std::string()> explain;
};

// The handle of one call. done(): the local result is there and local buffers may be reused. wait(stream) orders a
// stream behind it; synchronize() blocks the host and rethrows a failure; neither stands in for the other. Copyable.
class Work {
 public:
  Work() = default;
  explicit Work(Event event) : event_(std::move(event)) {}
  bool done() const { return event_.query(); }
  void wait(StreamView stream) const { stream.wait(event_); }
  void synchronize() const { event_.synchronize(); }

 private:
  Event event_;
};

// output[rank r's part] = input of rank r. count: elements per rank; output holds size() · count. In place where input
// lies at its own part of output. Ring-free: each rank reads size()-1 parts, bytes = (size()-1)·count·size_of(dtype)
// per rank.
struct AllGatherOptions {
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  CollectiveTag tag;
};

// Each part: output (counts[rank()] elements) = sum over ranks of their input's rank()-th slice; input holds
// sum(counts) elements, slices in rank order. Several parts are one call (a tied matrix has two). Output may alias the
// own slice of input. Every rank reads its slice of every peer: steps 1, bytes = (size()-1)·counts[rank()].
struct ReduceScatterPart {
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::uint64_t> counts;  // one per rank of the group; equal on all ranks
};
struct ReduceScatterOptions {
  std::vector<ReduceScatterPart> parts;
  DType dtype = DType::kFloat32;  // fp32, i64, i32 or u64
  ReduceOp reduce = ReduceOp::kSum;
  CollectiveTag tag;
};

// In place on data[count], and on the further buffers in the same call. fp32 (sum in tree order), i64, i32, u64 (sum), all with min and max.
struct AllReducePart {
  void* data = nullptr;
  std::uint64_t count = 0;
};
struct AllReduceOptions {
  void* data = nullptr;
  std::uint64_t count = 0;
  std::vector<AllReducePart> more = {};
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  CollectiveTag tag;
};

struct BroadcastOptions {
  void* data = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::kUInt8;
  int root = 0;  // group rank
  CollectiveTag tag;
};

struct SendOptions {
  const void* data = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  int peer = 0;  // group rank, not oneself
  CollectiveTag tag;
};
struct RecvOptions {
  void* data = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  int peer = 0;
  CollectiveTag tag;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  const Group& group() const { return group_; }
  int rank() const { return rank_; }  // within the group
  int size() const { return static_cast<int>(group_.members.size()); }
  virtual std::string_view backend() const = 0;  // "shm", "mpi", "threads"
  std::uint64_t num_calls() const { return num_calls_; }
  const std::string& channel() const { return hooks_.channel; }

  // From now on calls are recorded there. The log must outlive the streams' work. Host thread, while nothing is queued.
  void attach(CollectiveLog& log);
  // Compares the histories of all members (kStep; nothing at other levels), as a call of its own: CollectiveError through
  // the stream where they differ. Every member calls it at the same point of its program. The observer does not see it.
  Work compare_history(std::int64_t step, StreamView stream);
  // From the next call on. Every member, at the same point, while nothing is queued: levels come from a config that members
  // must first agree on.
  void set_fingerprint(FingerprintLevel level) { hooks_.fingerprint = level; }

  Work all_gather(const AllGatherOptions& options, StreamView stream);
  Work reduce_scatter(const ReduceScatterOptions& options, StreamView stream);
  Work all_reduce(const AllReduceOptions& options, StreamView stream);
  Work broadcast(const BroadcastOptions& options, StreamView stream);
  Work send(const SendOptions& options, StreamView stream);
  Work recv(const RecvOptions& options, StreamView stream);
  Work barrier(const CollectiveTag& tag, StreamView stream);

 protected:
  // world_ranks: of the members, by position.
  Communicator(Group group, int rank, CommunicatorHooks hooks, std::vector<int> world_ranks);

  // What a backend implements: called in stream order on the stream's thread, size() > 1 and arguments valid; blocks
  // until the local result is complete and local buffers may be reused.
  virtual void run_all_gather(const AllGatherOptions& options) = 0;
  virtual void run_reduce_scatter(const ReduceScatterOptions& options) = 0;
  // Of data[count]; options.more comes in runs of its own, of the same call.
  virtual void run_all_reduce(const AllReduceOptions& options) = 0;
  virtual void run_broadcast(const BroadcastOptions& options) = 0;
  virtual void run_send(const SendOptions& options) = 0;
  virtual void run_recv(const RecvOptions& options) = 0;
  virtual void run_barrier() = 0;

  // The call that a run_* is executing: what a failure names, and what backends compare between members.
  struct Call {
    CollectiveIdentity identity;
    std::uint64_t fingerprint = 0;  // 0: not to be compared
    bool recorded = false;          // its identity is worth showing to the others
    CollectiveLog* log = nullptr;
    CollectiveLog::Handle record;
    bool timed = false;  // for hooks_.recorder
    std::int64_t enqueued_ns = 0;
  };
  const Call& current_call() const { return current_; }
  // Whether members must compare the current call before they use each other's data.
  bool compares() const { return current_.fingerprint != 0; }
  // identities: by member, of the current call. Throws the CollectiveError of a mismatch.
  [[noreturn]] void refuse_mismatch(const std::vector<CollectiveIdentity>& identities) const;
  // The same for a message (send, recv): what the sender and this receiver say.
  [[noreturn]] void refuse_message(const CollectiveIdentity& sender) const;
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  // Gives up the wait for these members of the group (positions) after `seconds`.
  [[noreturn]] void stall(const std::vector<int>& members, double seconds) const;
  // Time that the current call spent waiting for peers.
  void add_waited(std::int64_t ns) { waited_ns_ += ns; }
  bool times_waits() const { return current_.log != nullptr || current_.timed; }

 private:
  // Makes the call, as chaos would have it where there is any.
  template <typename Options>
  Work make(CollectiveOp op, const Options& options, StreamView stream);
  // Applies what chaos planned for this call; true where it is left out.
  template <typename Options>
  bool tampered(CollectiveOp op, Options& options, StreamView stream);
  // Checks the arguments, records the call and queues it.
  Work issue(const AllGatherOptions& options, StreamView stream);
  Work issue(const ReduceScatterOptions& options, StreamView stream);
  Work issue(const AllReduceOptions& options, StreamView stream);
  Work issue(const BroadcastOptions& options, StreamView stream);
  Work issue(const SendOptions& options, StreamView stream);
  Work issue(const RecvOptions& options, StreamView stream);
  // Tells the observer, which may refuse, and only then gives the call its place in the history.
  Call record(CollectiveIdentity identity, const CollectiveTag& tag);
  Call enter(const CollectiveIdentity& identity, std::uint64_t& next);
  // Queues `body` as the given call. The communicator must outlive the stream's queue.
  template <typename Body>
  Work dispatch(const Call& call, StreamView stream, Body body);
  // On the stream's thread, for calls that are timed.
  void tell_recorder(std::int64_t started_ns) const;
  std::string explanation() const;

  Group group_;
  std::string name_;
  int rank_;
  CommunicatorHooks hooks_;
  std::vector<int> world_ranks_;
  std::uint64_t group_hash_;
  // Host thread:
  std::uint64_t sequence_ = 0, num_calls_ = 0, chain_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages, by peer
  CollectiveLog* log_ = nullptr;
  int log_index_ = -1;
  // The stream's thread:
  Call current_;
  std::int64_t waited_ns_ = 0;
};

struct CommunicatorOptions {
  // Elements one internal transfer moves at most; tests set 1,000 so that counts above 2^31 are covered by the same
  // code.
  std::uint64_t max_chunk_elements = 1ULL << 28;
  // A wait for a peer longer than this ends the call with a CollectiveError naming group, op and the missing ranks.
  double timeout_seconds = 600;
};

// Makes the communicators of one process (or of one thread, for tests). Every process calls create() for every group of
// the canonical list, in that order, member or not; non-members get nullptr.
class CommunicatorFactory {
 public:
  virtual ~CommunicatorFactory() = default;
  virtual std::unique_ptr<Communicator> create(const Group& group, const CommunicatorHooks& hooks) = 0;
  // Memory that peers read where it lies, for what is an input of collectives: parameter shards, gradients. (What is only
  // output, as gathered parameters, is better off in the device's own memory, which has huge pages.) nullptr where there is none.
  // It must outlive the allocator that takes segments from it.
  virtual MemoryResource* shared_memory() { return nullptr; }
  virtual std::string_view backend() const = 0;
};

}  // namespace tessera
