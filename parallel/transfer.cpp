#include "parallel/transfer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/ops/optimizer_ops.h"

namespace tessera {
namespace {

template <typename T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    // Written out so that a NaN on either side wins: std::min would keep or drop it by position.
    if (op == ReduceOp::kMin) return (a < b || a != a) ? a : b;
    return (a > b || a != a) ? a : b;
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    if (op == ReduceOp::kSum) return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
  }
}

template <typename T>
void reduce_as(ReduceOp op, void* destination, std::span<const void* const> sources, std::uint64_t count) {
  auto* out = static_cast<T*>(destination);
  for (std::uint64_t i = 0; i < count; ++i) {
    T value = static_cast<const T*>(sources[0])[i];
    for (std::size_t k = 1; k < sources.size(); ++k) value = combine(op, value, static_cast<const T*>(sources[k])[i]);
    out[i] = value;
  }
}

}  // namespace

void copy_bytes(void* destination, const void* source, std::uint64_t bytes) {
  if (bytes > 0 && destination != source) std::memcpy(destination, source, bytes);
}

void reduce(DType dtype, ReduceOp op, void* destination, std::span<const void* const> sources, std::uint64_t count) {
  if (count == 0) return;
  switch (dtype) {
    case DType::kFloat32: {
      if (op != ReduceOp::kSum) return reduce_as<float>(op, destination, sources, count);
      std::vector<const float*> typed;
      for (const void* source : sources) typed.push_back(static_cast<const float*>(source));
      return ops::tree_sum({static_cast<float*>(destination), count}, typed);
    }
    case DType::kInt64:
      return reduce_as<std::int64_t>(op, destination, sources, count);
    case DType::kInt32:
      return reduce_as<std::int32_t>(op, destination, sources, count);
    case DType::kUInt64:
      return reduce_as<std::uint64_t>(op, destination, sources, count);
    default:
      throw InternalError(fmt::format("reduce: no reduction for {}", name_of(dtype)));
  }
}

std::uint64_t offset_of(const std::vector<std::uint64_t>& counts, int index) {
  std::uint64_t before = 0;
  for (int i = 0; i < index; ++i) before += counts[static_cast<std::size_t>(i)];
  return before;
}

std::vector<std::uint64_t> even_slices(std::uint64_t count, int num_slices) {
  const auto slices = static_cast<std::uint64_t>(num_slices);
  std::vector<std::uint64_t> counts(slices, count / slices);
  for (std::uint64_t i = 0; i < count % slices; ++i) ++counts[i];
  return counts;
}

void throw_stall(const Stall& stall) {
  std::string purpose;
  if (!stall.tag.what.empty()) {
    purpose = fmt::format(" ({}, {}, step {})", stall.tag.what, stall.tag.phase, stall.tag.step);
  }
  throw CollectiveError(fmt::format("{} {} on {}{}: no sign of world rank{} {} within {} s", name_of(stall.op),
                                    stall.sequence, stall.group, purpose, stall.missing.size() == 1 ? "" : "s",
                                    fmt::join(stall.missing, ", "), stall.seconds),
                        "that rank died, hangs or makes other calls: see its log; "
                        "collectives.timeout_seconds sets the limit");
}

}  // namespace tessera
