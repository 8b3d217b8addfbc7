#include "parallel/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "parallel/transfer.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

// Says where a mistake is, and only then formats anything: these checks are made for every call.
struct Where {
  CollectiveOp op;
  const std::string& group;
  [[noreturn]] void refuse(const std::string& what) const {
    throw InternalError(fmt::format("{} on {}: {}", name_of(op), group, what));
  }

  // Counts whose bytes would not fit in 63 bits are mistakes (a negative number cast, for instance), not requests.
  void check_count(std::uint64_t count, std::uint64_t times, DType dtype) const {
    const std::uint64_t limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (count > limit / times / size_of(dtype)) {
      refuse(fmt::format("{} elements of {} for {} ranks overflow", count, name_of(dtype), times));
    }
  }
  void check_pointer(const void* data, std::uint64_t count) const {
    if (data == nullptr && count != 0) refuse(fmt::format("no buffer for {} elements", count));
  }
  void check_rank(std::string_view what, int rank, int size) const {
    if (rank < 0 || rank >= size) refuse(fmt::format("{} {} is not one of the {} ranks", what, rank, size));
  }
  void check_reducible(DType dtype) const {
    if (dtype != DType::kFloat32 && dtype != DType::kInt64 && dtype != DType::kInt32 && dtype != DType::kUInt64) {
      refuse(fmt::format("cannot reduce {}", name_of(dtype)));
    }
  }
};

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

const char* as_bytes(const void* data) {
  return static_cast<const char*>(data);
}

}  // namespace

Communicator::Communicator(Group group, int rank, CommunicatorHooks hooks, std::vector<int> world_ranks)
    : group_(std::move(group)),
      name_(group_.name()),
      rank_(rank),
      hooks_(std::move(hooks)),
      world_ranks_(std::move(world_ranks)),
      group_hash_(collective_group_hash(name_, hooks_.channel, static_cast<int>(group_.members.size()))),
      sent_(group_.members.size()),
      received_(group_.members.size()) {
  require(!group_.members.empty() && rank_ >= 0 && rank_ < size(),
          fmt::format("communicator: rank {} of {} with {} members", rank_, name_, size()));
  require(world_ranks_.size() == group_.members.size(), "communicator: a world rank for each member");
}

void Communicator::attach(CollectiveLog& log) {
  if (hooks_.fingerprint == FingerprintLevel::kOff) return;
  log_index_ = log.add_communicator(
      {.group = name_, .channel = hooks_.channel, .size = size(), .position = rank_, .group_hash = group_hash_});
  log_ = &log;
}

Communicator::Call Communicator::record(CollectiveIdentity identity, const CollectiveTag& tag) {
  set_name(identity.what, sizeof identity.what, tag.what);
  set_name(identity.phase, sizeof identity.phase, tag.phase);
  identity.step = tag.step;
  identity.micro_batch = tag.micro_batch;
  std::uint64_t* next = &sequence_;
  if (identity.op == CollectiveOp::kSend) next = &sent_[static_cast<std::size_t>(identity.peer)];
  if (identity.op == CollectiveOp::kRecv) next = &received_[static_cast<std::size_t>(identity.root)];
  identity.sequence = *next;
  if (hooks_.observer) hooks_.observer->on_call({name_, hooks_.channel, identity});
  Call call = enter(identity, *next);
  if (hooks_.fingerprint != FingerprintLevel::kStrict) call.fingerprint = 0;
  return call;
}

// The place in the history, and in the log.
Communicator::Call Communicator::enter(const CollectiveIdentity& identity, std::uint64_t& next) {
  ++next;
  ++num_calls_;
  Call call;
  call.identity = identity;
  call.timed = hooks_.recorder != nullptr && hooks_.recorder->wants_calls();
  if (call.timed) call.enqueued_ns = monotonic_ns();
  if (hooks_.fingerprint == FingerprintLevel::kOff) return call;
  call.recorded = true;
  call.fingerprint = fingerprint_of(group_hash_, identity);
  if (!is_message(identity.op)) chain_ = extend_chain(chain_, call.fingerprint);
  if (log_ != nullptr) {
    call.log = log_;
    call.record = log_->enqueue(log_index_, identity, call.fingerprint, chain_);
  }
  return call;
}

template <typename Body>
Work Communicator::dispatch(const Call& call, StreamView stream, Body body) {
  stream.enqueue([this, call, body = std::move(body)] {
    current_ = call;
    waited_ns_ = 0;
    if (call.log != nullptr) call.log->started(call.record);
    const std::int64_t started_ns = call.timed ? monotonic_ns() : 0;
    body();
    if (call.timed) tell_recorder(started_ns);
    if (call.log != nullptr) call.log->finished(call.record, waited_ns_);
  });
  return Work(stream.record());
}

void Communicator::tell_recorder(std::int64_t started_ns) const {
  hooks_.recorder->on_finished({.group = name_,
                                .channel = hooks_.channel,
                                .group_size = size(),
                                .identity = current_.identity,
                                .enqueued_ns = current_.enqueued_ns,
                                .started_ns = started_ns,
                                .finished_ns = monotonic_ns(),
                                .waited_ns = waited_ns_});
}

std::string Communicator::explanation() const {
  const std::string line = hooks_.explain ? hooks_.explain() : "";
  return line.empty() ? "" : "; " + line;
}

void Communicator::refuse_mismatch(const std::vector<CollectiveIdentity>& identities) const {
  const std::string sides = describe_sides(world_ranks_, identities, world_ranks_);
  if (current_.identity.what_view() == kHistoryName) {
    throw CollectiveError(fmt::format("collective mismatch: the calls of {}/{} before call {} differ: {}{}", name_,
                                      hooks_.channel, current_.identity.sequence, sides, explanation()),
                          "collectives.fingerprint: strict stops before the data of the first wrong call is used",
                          FoundBy::kHistory);
  }
  throw CollectiveError(fmt::format("collective mismatch at call {} of {}/{}: {}; none of its data was used",
                                    current_.identity.sequence, name_, hooks_.channel, sides),
                        "these ranks run different programs: see tessera inspect on the run directory",
                        FoundBy::kFingerprint);
}

void Communicator::refuse_message(const CollectiveIdentity& sender) const {
  const std::array<int, 2> ranks = {world_ranks_[static_cast<std::size_t>(current_.identity.root)],
                                    world_ranks_[static_cast<std::size_t>(rank_)]};
  const std::array<CollectiveIdentity, 2> identities = {sender, current_.identity};
  throw CollectiveError(fmt::format("message mismatch on {}/{}: {}; none of its data was used", name_, hooks_.channel,
                                    describe_sides(ranks, identities, world_ranks_)),
                        "these ranks run different programs: see tessera inspect on the run directory",
                        FoundBy::kFingerprint);
}

Work Communicator::compare_history(std::int64_t step, StreamView stream) {
  if (hooks_.fingerprint != FingerprintLevel::kStep || size() == 1) return Work(stream.record());
  CollectiveIdentity identity;
  identity.sequence = sequence_;
  identity.layout = chain_;
  identity.step = step;
  set_name(identity.what, sizeof identity.what, kHistoryName);
  set_name(identity.phase, sizeof identity.phase, "compare");
  return dispatch(enter(identity, sequence_), stream, [this] { run_barrier(); });
}

void Communicator::stall(const std::vector<int>& members, double seconds) const {
  std::vector<int> missing;
  for (const int member : members) missing.push_back(world_ranks_[static_cast<std::size_t>(member)]);
  std::sort(missing.begin(), missing.end());
  const CollectiveIdentity& call = current_.identity;
  throw CollectiveError(
      fmt::format("call {} of {}/{} ({}): no sign of world rank{} {} within {} s{}", call.sequence, name_,
                  hooks_.channel, describe(call, world_ranks_), missing.size() == 1 ? "" : "s",
                  fmt::join(missing, ", "), seconds, explanation()),
      "that rank died, hangs or makes other calls: see its log; collectives.timeout_seconds sets the limit",
      FoundBy::kTimeout);
}

template <typename Options>
bool Communicator::tampered(CollectiveOp op, Options& options, StreamView stream) {
  if (!hooks_.faults) return false;
  switch (hooks_.faults->next(name_, op, options.tag)) {
    case CallFault::kNone: return false;
    case CallFault::kSkip: return true;
    case CallFault::kExtra: {
      CollectiveTag tag = options.tag;
      tag.what = "extra";
      barrier(tag, stream);
      return false;
    }
    case CallFault::kWrongDType:
      // Another type of the same size, which no check of sizes sees. Types without such a one stay as they are.
      if constexpr (requires { options.dtype; }) {
        switch (options.dtype) {
          case DType::kFloat32: options.dtype = DType::kInt32; break;
          case DType::kInt32: options.dtype = DType::kFloat32; break;
          case DType::kInt64: options.dtype = DType::kUInt64; break;
          case DType::kUInt64: options.dtype = DType::kInt64; break;
          default: break;
        }
      }
      return false;
    case CallFault::kWrongCount:
      if constexpr (requires { options.count; }) {
        if (options.count > 0) --options.count;
      } else if constexpr (requires { options.parts; }) {
        for (ReduceScatterPart& part : options.parts) {
          for (std::uint64_t& count : part.counts) count -= count > 0 ? 1 : 0;
        }
      }
      return false;
    case CallFault::kWrongReduceOp:
      if constexpr (requires { options.reduce; }) {
        options.reduce = options.reduce == ReduceOp::kSum ? ReduceOp::kMax : ReduceOp::kSum;
      }
      return false;
    case CallFault::kWrongRoot:
      if constexpr (requires { options.root; }) options.root = (options.root + 1) % size();
      return false;
  }
  return false;
}

template <typename Options>
Work Communicator::make(CollectiveOp op, const Options& options, StreamView stream) {
  if (!hooks_.faults) return issue(options, stream);
  Options changed = options;
  return tampered(op, changed, stream) ? Work(stream.record()) : issue(changed, stream);
}

Work Communicator::all_gather(const AllGatherOptions& options, StreamView stream) {
  return make(CollectiveOp::kAllGather, options, stream);
}
Work Communicator::reduce_scatter(const ReduceScatterOptions& options, StreamView stream) {
  return make(CollectiveOp::kReduceScatter, options, stream);
}
Work Communicator::all_reduce(const AllReduceOptions& options, StreamView stream) {
  return make(CollectiveOp::kAllReduce, options, stream);
}
Work Communicator::broadcast(const BroadcastOptions& options, StreamView stream) {
  return make(CollectiveOp::kBroadcast, options, stream);
}
Work Communicator::send(const SendOptions& options, StreamView stream) {
  return make(CollectiveOp::kSend, options, stream);
}
Work Communicator::recv(const RecvOptions& options, StreamView stream) {
  return make(CollectiveOp::kRecv, options, stream);
}

Work Communicator::issue(const AllGatherOptions& options, StreamView stream) {
  const Where where{CollectiveOp::kAllGather, name_};
  where.check_count(options.count, static_cast<std::uint64_t>(size()), options.dtype);
  where.check_pointer(options.input, options.count);
  where.check_pointer(options.output, options.count);
  const std::uint64_t bytes = options.count * size_of(options.dtype);
  const char* own = as_bytes(options.output) + static_cast<std::uint64_t>(rank_) * bytes;
  if (options.input != own &&
      overlap(options.input, bytes, options.output, bytes * static_cast<std::uint64_t>(size()))) {
    where.refuse("input overlaps output elsewhere than at the rank's own part");
  }
  const Call call =
      record({.num_elements = options.count, .op = CollectiveOp::kAllGather, .dtype = options.dtype}, options.tag);
  return dispatch(call, stream, [this, options] {
    if (size() == 1) {
      copy_bytes(options.output, options.input, options.count * size_of(options.dtype));
    } else {
      run_all_gather(options);
    }
  });
}

Work Communicator::issue(const ReduceScatterOptions& options, StreamView stream) {
  const Where where{CollectiveOp::kReduceScatter, name_};
  where.check_reducible(options.dtype);
  const std::size_t element = size_of(options.dtype);
  std::uint64_t total = 0, layout = 0;
  for (const ReduceScatterPart& part : options.parts) {
    if (part.counts.size() != static_cast<std::size_t>(size())) {
      where.refuse(fmt::format("{} counts for {} ranks", part.counts.size(), size()));
    }
    for (const std::uint64_t count : part.counts) {
      where.check_count(count, part.counts.size() * options.parts.size(), options.dtype);
    }
    const std::uint64_t count = std::accumulate(part.counts.begin(), part.counts.end(), std::uint64_t{0});
    const std::uint64_t before = offset_of(part.counts, rank_);
    const std::uint64_t mine = part.counts[static_cast<std::size_t>(rank_)];
    where.check_pointer(part.input, count);
    where.check_pointer(part.output, mine);
    if (part.output != as_bytes(part.input) + before * element &&
        overlap(part.input, count * element, part.output, mine * element)) {
      where.refuse("output overlaps input elsewhere than at the rank's own slice");
    }
    total += count;
    layout = extend_layout(layout, part.counts);
  }
  const Call call = record({.num_elements = total,
                            .layout = layout,
                            .op = CollectiveOp::kReduceScatter,
                            .reduce = options.reduce,
                            .dtype = options.dtype},
                           options.tag);
  return dispatch(call, stream, [this, options] {
    if (size() > 1) return run_reduce_scatter(options);
    for (const ReduceScatterPart& part : options.parts) {
      copy_bytes(part.output, part.input, part.counts[0] * size_of(options.dtype));
    }
  });
}

Work Communicator::issue(const AllReduceOptions& options, StreamView stream) {
  const Where where{CollectiveOp::kAllReduce, name_};
  where.check_reducible(options.dtype);
  where.check_count(options.count, 1 + options.more.size(), options.dtype);
  where.check_pointer(options.data, options.count);
  CollectiveIdentity identity{
      .num_elements = options.count, .op = CollectiveOp::kAllReduce, .reduce = options.reduce, .dtype = options.dtype};
  for (const AllReducePart& part : options.more) {
    where.check_count(part.count, 1 + options.more.size(), options.dtype);
    where.check_pointer(part.data, part.count);
    identity.num_elements += part.count;
    identity.layout = extend_layout(identity.layout, std::span(&part.count, 1));
  }
  const Call call = record(identity, options.tag);
  return dispatch(call, stream, [this, options] {
    if (size() == 1) return;
    run_all_reduce(options);
    AllReduceOptions next = options;
    for (const AllReducePart& part : options.more) {
      next.data = part.data;
      next.count = part.count;
      run_all_reduce(next);
    }
  });
}

Work Communicator::issue(const BroadcastOptions& options, StreamView stream) {
  const Where where{CollectiveOp::kBroadcast, name_};
  where.check_rank("root", options.root, size());
  where.check_count(options.count, 1, options.dtype);
  where.check_pointer(options.data, options.count);
  const Call call = record(
      {.num_elements = options.count, .root = options.root, .op = CollectiveOp::kBroadcast, .dtype = options.dtype},
      options.tag);
  return dispatch(call, stream, [this, options] {
    if (size() > 1) run_broadcast(options);
  });
}

Work Communicator::issue(const SendOptions& options, StreamView stream) {
  const Where where{CollectiveOp::kSend, name_};
  where.check_rank("peer", options.peer, size());
  if (options.peer == rank_) where.refuse("a rank cannot send to itself");
  where.check_count(options.count, 1, options.dtype);
  where.check_pointer(options.data, options.count);
  const Call call = record({.num_elements = options.count,
                            .root = rank_,
                            .peer = options.peer,
                            .op = CollectiveOp::kSend,
                            .dtype = options.dtype},
                           options.tag);
  return dispatch(call, stream, [this, options] { run_send(options); });
}

Work Communicator::issue(const RecvOptions& options, StreamView stream) {
  const Where where{CollectiveOp::kRecv, name_};
  where.check_rank("peer", options.peer, size());
  if (options.peer == rank_) where.refuse("a rank cannot receive from itself");
  where.check_count(options.count, 1, options.dtype);
  where.check_pointer(options.data, options.count);
  const Call call = record({.num_elements = options.count,
                            .root = options.peer,
                            .peer = rank_,
                            .op = CollectiveOp::kRecv,
                            .dtype = options.dtype},
                           options.tag);
  return dispatch(call, stream, [this, options] { run_recv(options); });
}

Work Communicator::barrier(const CollectiveTag& tag, StreamView stream) {
  const Call call = record({.op = CollectiveOp::kBarrier}, tag);
  return dispatch(call, stream, [this] {
    if (size() > 1) run_barrier();
  });
}

}  // namespace tessera
