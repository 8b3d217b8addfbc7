#include "parallel/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "parallel/transfer.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

std::string at(CollectiveOp op, const Group& group) {
  return fmt::format("{} on {}: ", name_of(op), group.name());
}

// Counts whose bytes would not fit in 63 bits are mistakes (a negative number cast, for instance), not requests.
void check_count(const std::string& where, std::uint64_t count, std::uint64_t times, DType dtype) {
  const std::uint64_t limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  require(count <= limit / times / size_of(dtype),
          fmt::format("{}{} elements of {} for {} ranks overflow", where, count, name_of(dtype), times));
}

void check_pointer(const std::string& where, const void* data, std::uint64_t count) {
  require(data != nullptr || count == 0, fmt::format("{}no buffer for {} elements", where, count));
}

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

const char* as_bytes(const void* data) {
  return static_cast<const char*>(data);
}

void check_rank(const std::string& where, std::string_view what, int rank, int size) {
  require(rank >= 0 && rank < size, fmt::format("{}{} {} is not one of the {} ranks", where, what, rank, size));
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
  ++*next;
  ++num_calls_;
  Call call;
  call.identity = identity;
  if (hooks_.fingerprint == FingerprintLevel::kOff) return call;
  const std::uint64_t fingerprint = fingerprint_of(group_hash_, identity);
  if (!is_message(identity.op)) chain_ = extend_chain(chain_, fingerprint);
  if (log_ != nullptr) {
    call.log = log_;
    call.record = log_->enqueue(log_index_, identity, fingerprint, chain_);
  }
  if (hooks_.fingerprint == FingerprintLevel::kStrict) call.fingerprint = fingerprint;
  return call;
}

Work Communicator::dispatch(const Call& call, StreamView stream, std::function<void()> body) {
  stream.enqueue([this, call, body = std::move(body)] {
    current_ = call;
    waited_ns_ = 0;
    if (call.log != nullptr) call.log->started(call.record);
    body();
    if (call.log != nullptr) call.log->finished(call.record, waited_ns_);
  });
  return Work(stream.record());
}

std::string Communicator::explanation() const {
  const std::string line = hooks_.explain ? hooks_.explain() : "";
  return line.empty() ? "" : "; " + line;
}

void Communicator::refuse_mismatch(const std::vector<CollectiveIdentity>& identities) const {
  throw CollectiveError(
      fmt::format("collective mismatch at call {} of {}/{}: {}; none of its data was used", current_.identity.sequence,
                  name_, hooks_.channel, describe_sides(world_ranks_, identities)),
      "these ranks run different programs: see tessera inspect on the run directory", FoundBy::kFingerprint);
}

void Communicator::refuse_message(const CollectiveIdentity& sender) const {
  const auto world = [&](int member) { return world_ranks_[static_cast<std::size_t>(member)]; };
  throw CollectiveError(
      fmt::format("message mismatch on {}/{}: {}; none of its data was used", name_, hooks_.channel,
                  describe_sides({world(current_.identity.root), world(rank_)}, {sender, current_.identity})),
      "these ranks run different programs: see tessera inspect on the run directory", FoundBy::kFingerprint);
}

void Communicator::compare_by_exchange() {
  if (!compares()) return;
  std::vector<CollectiveIdentity> all(world_ranks_.size());
  run_exchange(&current_.identity, all.data(), sizeof(CollectiveIdentity));
  for (const CollectiveIdentity& identity : all) {
    if (std::memcmp(&identity, &current_.identity, sizeof identity) != 0) refuse_mismatch(all);
  }
}

Work Communicator::compare_history(StreamView stream) {
  if (hooks_.fingerprint != FingerprintLevel::kStep || size() == 1) return Work(stream.record());
  struct History {
    std::uint64_t num_calls, chain;
  };
  stream.enqueue([this, own = History{sequence_, chain_}] {
    current_ = {};
    current_.identity.sequence = own.num_calls;
    set_name(current_.identity.what, sizeof current_.identity.what, "history");
    std::vector<History> all(world_ranks_.size());
    run_exchange(&own, all.data(), sizeof own);
    std::string text;
    bool equal = true;
    for (std::size_t member = 0; member < all.size(); ++member) {
      equal = equal && all[member].num_calls == own.num_calls && all[member].chain == own.chain;
      text += fmt::format("{}rank {}: {} calls, hash {}", member == 0 ? "" : "; ", world_ranks_[member],
                          all[member].num_calls, hex64(all[member].chain));
    }
    if (equal) return;
    throw CollectiveError(fmt::format("collective mismatch: the calls of {}/{} so far differ: {}{}", name_,
                                      hooks_.channel, text, explanation()),
                          "collectives.fingerprint: strict stops before the data of the first wrong call is used",
                          FoundBy::kHistory);
  });
  return Work(stream.record());
}

void Communicator::stall(const std::vector<int>& members, double seconds) const {
  std::vector<int> missing;
  for (const int member : members) missing.push_back(world_ranks_[static_cast<std::size_t>(member)]);
  std::sort(missing.begin(), missing.end());
  const CollectiveIdentity& call = current_.identity;
  throw CollectiveError(
      fmt::format("call {} of {}/{} ({}): no sign of world rank{} {} within {} s{}", call.sequence, name_,
                  hooks_.channel, describe(call), missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), seconds,
                  explanation()),
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
      // Another type of the same size, which no check of sizes sees.
      if constexpr (requires { options.dtype; }) {
        options.dtype = size_of(options.dtype) == 4 ? (options.dtype == DType::kInt32 ? DType::kFloat32 : DType::kInt32)
                                                    : (options.dtype == DType::kInt64 ? DType::kUInt64 : DType::kInt64);
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

Work Communicator::all_gather(const AllGatherOptions& given, StreamView stream) {
  AllGatherOptions options = given;
  if (tampered(CollectiveOp::kAllGather, options, stream)) return Work(stream.record());
  const std::string where = at(CollectiveOp::kAllGather, group_);
  check_count(where, options.count, static_cast<std::uint64_t>(size()), options.dtype);
  check_pointer(where, options.input, options.count);
  check_pointer(where, options.output, options.count);
  const std::uint64_t bytes = options.count * size_of(options.dtype);
  const char* own = as_bytes(options.output) + static_cast<std::uint64_t>(rank_) * bytes;
  require(options.input == own ||
              !overlap(options.input, bytes, options.output, bytes * static_cast<std::uint64_t>(size())),
          where + "input overlaps output elsewhere than at the rank's own part");
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

Work Communicator::reduce_scatter(const ReduceScatterOptions& given, StreamView stream) {
  ReduceScatterOptions options = given;
  if (tampered(CollectiveOp::kReduceScatter, options, stream)) return Work(stream.record());
  const std::string where = at(CollectiveOp::kReduceScatter, group_);
  require(options.dtype == DType::kFloat32 || options.dtype == DType::kInt64 || options.dtype == DType::kInt32,
          where + "cannot reduce " + std::string(name_of(options.dtype)));
  const std::size_t element = size_of(options.dtype);
  std::uint64_t total = 0, layout = 0;
  for (const ReduceScatterPart& part : options.parts) {
    require(part.counts.size() == static_cast<std::size_t>(size()),
            fmt::format("{}{} counts for {} ranks", where, part.counts.size(), size()));
    for (const std::uint64_t count : part.counts) {
      check_count(where, count, part.counts.size() * options.parts.size(), options.dtype);
    }
    const std::uint64_t count = std::accumulate(part.counts.begin(), part.counts.end(), std::uint64_t{0});
    const std::uint64_t before = offset_of(part.counts, rank_);
    const std::uint64_t mine = part.counts[static_cast<std::size_t>(rank_)];
    check_pointer(where, part.input, count);
    check_pointer(where, part.output, mine);
    require(part.output == as_bytes(part.input) + before * element ||
                !overlap(part.input, count * element, part.output, mine * element),
            where + "output overlaps input elsewhere than at the rank's own slice");
    total += count;
    layout = hash_bytes(part.counts.data(), part.counts.size() * sizeof(std::uint64_t), layout + 1);
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

Work Communicator::all_reduce(const AllReduceOptions& given, StreamView stream) {
  AllReduceOptions options = given;
  if (tampered(CollectiveOp::kAllReduce, options, stream)) return Work(stream.record());
  const std::string where = at(CollectiveOp::kAllReduce, group_);
  require(options.dtype == DType::kFloat32 || options.dtype == DType::kInt64 || options.dtype == DType::kInt32 ||
              options.dtype == DType::kUInt64,
          where + "cannot reduce " + std::string(name_of(options.dtype)));
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
  const Call call = record(
      {.num_elements = options.count, .op = CollectiveOp::kAllReduce, .reduce = options.reduce, .dtype = options.dtype},
      options.tag);
  return dispatch(call, stream, [this, options] {
    if (size() > 1) run_all_reduce(options);
  });
}

Work Communicator::broadcast(const BroadcastOptions& given, StreamView stream) {
  BroadcastOptions options = given;
  if (tampered(CollectiveOp::kBroadcast, options, stream)) return Work(stream.record());
  const std::string where = at(CollectiveOp::kBroadcast, group_);
  check_rank(where, "root", options.root, size());
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
  const Call call = record(
      {.num_elements = options.count, .root = options.root, .op = CollectiveOp::kBroadcast, .dtype = options.dtype},
      options.tag);
  return dispatch(call, stream, [this, options] {
    if (size() > 1) run_broadcast(options);
  });
}

Work Communicator::send(const SendOptions& given, StreamView stream) {
  SendOptions options = given;
  if (tampered(CollectiveOp::kSend, options, stream)) return Work(stream.record());
  const std::string where = at(CollectiveOp::kSend, group_);
  check_rank(where, "peer", options.peer, size());
  require(options.peer != rank_, where + "a rank cannot send to itself");
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
  const Call call = record({.num_elements = options.count,
                            .root = rank_,
                            .peer = options.peer,
                            .op = CollectiveOp::kSend,
                            .dtype = options.dtype},
                           options.tag);
  return dispatch(call, stream, [this, options] { run_send(options); });
}

Work Communicator::recv(const RecvOptions& given, StreamView stream) {
  RecvOptions options = given;
  if (tampered(CollectiveOp::kRecv, options, stream)) return Work(stream.record());
  const std::string where = at(CollectiveOp::kRecv, group_);
  check_rank(where, "peer", options.peer, size());
  require(options.peer != rank_, where + "a rank cannot receive from itself");
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
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
