#include "parallel/communicator.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <utility>

#include "parallel/transfer.h"
#include "runtime/base/error.h"

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

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
  }
  throw InternalError("communicator: unknown reduce op");
}

std::string_view name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllGather: return "all_gather";
    case CollectiveOp::kReduceScatter: return "reduce_scatter";
    case CollectiveOp::kAllReduce: return "all_reduce";
    case CollectiveOp::kBroadcast: return "broadcast";
    case CollectiveOp::kSend: return "send";
    case CollectiveOp::kRecv: return "recv";
    case CollectiveOp::kBarrier: return "barrier";
  }
  throw InternalError("communicator: unknown collective op");
}

Communicator::Communicator(Group group, int rank, std::shared_ptr<CollectiveObserver> observer)
    : group_(std::move(group)), rank_(rank), observer_(std::move(observer)) {
  require(!group_.members.empty() && rank_ >= 0 && rank_ < size(),
          fmt::format("communicator: rank {} of {} with {} members", rank_, group_.name(), size()));
}

Communicator::Call Communicator::record(CollectiveRecord record, const CollectiveTag& tag) {
  const std::string name = group_.name();
  record.group = name;
  record.sequence = sequence_;
  record.tag = &tag;
  if (observer_) observer_->on_call(record);
  return {record.op, sequence_++, tag};
}

Work Communicator::dispatch(Call call, StreamView stream, std::function<void()> body) {
  stream.enqueue([this, call = std::move(call), body = std::move(body)] {
    current_ = call;
    body();
  });
  return Work(stream.record());
}

Work Communicator::all_gather(const AllGatherOptions& options, StreamView stream) {
  const std::string where = at(CollectiveOp::kAllGather, group_);
  check_count(where, options.count, static_cast<std::uint64_t>(size()), options.dtype);
  check_pointer(where, options.input, options.count);
  check_pointer(where, options.output, options.count);
  const std::uint64_t bytes = options.count * size_of(options.dtype);
  const char* own = as_bytes(options.output) + static_cast<std::uint64_t>(rank_) * bytes;
  require(options.input == own ||
              !overlap(options.input, bytes, options.output, bytes * static_cast<std::uint64_t>(size())),
          where + "input overlaps output elsewhere than at the rank's own part");
  Call call =
      record({.op = CollectiveOp::kAllGather, .dtype = options.dtype, .num_elements = options.count}, options.tag);
  return dispatch(std::move(call), stream, [this, options] {
    if (size() == 1) {
      copy_bytes(options.output, options.input, options.count * size_of(options.dtype));
    } else {
      run_all_gather(options);
    }
  });
}

Work Communicator::reduce_scatter(const ReduceScatterOptions& options, StreamView stream) {
  const std::string where = at(CollectiveOp::kReduceScatter, group_);
  require(options.dtype == DType::kFloat32 || options.dtype == DType::kInt64,
          where + "cannot reduce " + std::string(name_of(options.dtype)));
  const std::size_t element = size_of(options.dtype);
  std::uint64_t total = 0;
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
  }
  Call call = record(
      {.op = CollectiveOp::kReduceScatter, .reduce = options.reduce, .dtype = options.dtype, .num_elements = total},
      options.tag);
  return dispatch(std::move(call), stream, [this, options] {
    if (size() > 1) return run_reduce_scatter(options);
    for (const ReduceScatterPart& part : options.parts) {
      copy_bytes(part.output, part.input, part.counts[0] * size_of(options.dtype));
    }
  });
}

Work Communicator::all_reduce(const AllReduceOptions& options, StreamView stream) {
  const std::string where = at(CollectiveOp::kAllReduce, group_);
  require(options.dtype == DType::kFloat32 || options.dtype == DType::kInt64 || options.dtype == DType::kInt32 ||
              options.dtype == DType::kUInt64,
          where + "cannot reduce " + std::string(name_of(options.dtype)));
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
  Call call = record(
      {.op = CollectiveOp::kAllReduce, .reduce = options.reduce, .dtype = options.dtype, .num_elements = options.count},
      options.tag);
  return dispatch(std::move(call), stream, [this, options] {
    if (size() > 1) run_all_reduce(options);
  });
}

Work Communicator::broadcast(const BroadcastOptions& options, StreamView stream) {
  const std::string where = at(CollectiveOp::kBroadcast, group_);
  check_rank(where, "root", options.root, size());
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
  Call call = record(
      {.op = CollectiveOp::kBroadcast, .root = options.root, .dtype = options.dtype, .num_elements = options.count},
      options.tag);
  return dispatch(std::move(call), stream, [this, options] {
    if (size() > 1) run_broadcast(options);
  });
}

Work Communicator::send(const SendOptions& options, StreamView stream) {
  const std::string where = at(CollectiveOp::kSend, group_);
  check_rank(where, "peer", options.peer, size());
  require(options.peer != rank_, where + "a rank cannot send to itself");
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
  Call call =
      record({.op = CollectiveOp::kSend, .root = options.peer, .dtype = options.dtype, .num_elements = options.count},
             options.tag);
  return dispatch(std::move(call), stream, [this, options] { run_send(options); });
}

Work Communicator::recv(const RecvOptions& options, StreamView stream) {
  const std::string where = at(CollectiveOp::kRecv, group_);
  check_rank(where, "peer", options.peer, size());
  require(options.peer != rank_, where + "a rank cannot receive from itself");
  check_count(where, options.count, 1, options.dtype);
  check_pointer(where, options.data, options.count);
  Call call =
      record({.op = CollectiveOp::kRecv, .root = options.peer, .dtype = options.dtype, .num_elements = options.count},
             options.tag);
  return dispatch(std::move(call), stream, [this, options] { run_recv(options); });
}

Work Communicator::barrier(const CollectiveTag& tag, StreamView stream) {
  Call call = record({.op = CollectiveOp::kBarrier}, tag);
  return dispatch(std::move(call), stream, [this] {
    if (size() > 1) run_barrier();
  });
}

}  // namespace tessera
