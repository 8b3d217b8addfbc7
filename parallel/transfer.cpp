#include "parallel/transfer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "parallel/streaming.h"
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

// Elements that reductions hold in the first-level cache at a time.
constexpr std::uint64_t kBlockElements = 1024;

template <typename T>
void reduce_block(ReduceOp op, T* block, const T* source, std::uint64_t n) {
  const auto with = [&](auto combined) {
    for (std::uint64_t i = 0; i < n; ++i) block[i] = combined(block[i], source[i]);
  };
  // One loop per operation, so that each is a vector loop.
  if (op == ReduceOp::kSum) return with([](T a, T b) { return combine(ReduceOp::kSum, a, b); });
  if (op == ReduceOp::kMin) return with([](T a, T b) { return combine(ReduceOp::kMin, a, b); });
  with([](T a, T b) { return combine(ReduceOp::kMax, a, b); });
}

template <typename T>
void reduce_as(ReduceOp op, T* destination, std::span<const void* const> sources, std::uint64_t count) {
  std::array<T, kBlockElements> block;  // of its own: the destination may be any of the sources
  for (std::uint64_t begin = 0; begin < count; begin += kBlockElements) {
    const std::uint64_t n = std::min(kBlockElements, count - begin);
    std::copy_n(static_cast<const T*>(sources[0]) + begin, n, block.begin());
    for (const void* source : sources.subspan(1))
      reduce_block(op, block.data(), static_cast<const T*>(source) + begin, n);
    std::copy_n(block.begin(), n, destination + begin);
  }
}

void tree_sum(float* destination, std::span<const void* const> sources, std::uint64_t count, ResultUse use) {
  std::vector<const float*> at(sources.size());
  if (use == ResultUse::kAtOnce || count * sizeof(float) < kStreamingBytes) {
    std::transform(sources.begin(), sources.end(), at.begin(),
                   [](const void* p) { return static_cast<const float*>(p); });
    return ops::tree_sum({destination, count}, at);
  }
  if (sources.size() == 2) {
    stream_sum_of_two(destination, static_cast<const float*>(sources[0]), static_cast<const float*>(sources[1]), count);
    return stream_fence();
  }
  // Sums go through a block that stays in the first-level cache and are streamed from there.
  alignas(64) std::array<float, kBlockElements> block;
  for (std::uint64_t begin = 0; begin < count; begin += kBlockElements) {
    const std::uint64_t n = std::min(kBlockElements, count - begin);
    std::transform(sources.begin(), sources.end(), at.begin(),
                   [&](const void* p) { return static_cast<const float*>(p) + begin; });
    ops::tree_sum({block.data(), n}, at);
    stream_copy(destination + begin, block.data(), n * sizeof(float));
  }
  stream_fence();
}

}  // namespace

void copy_bytes(void* destination, const void* source, std::uint64_t bytes) {
  if (bytes == 0 || destination == source) return;
  if (bytes < kStreamingBytes) {
    std::memcpy(destination, source, bytes);
  } else {
    stream_copy(destination, source, bytes);
    stream_fence();
  }
}

void reduce(DType dtype, ReduceOp op, void* destination, std::span<const void* const> sources, std::uint64_t count,
            ResultUse use) {
  if (count == 0) return;
  switch (dtype) {
    case DType::kFloat32:
      if (op == ReduceOp::kSum) return tree_sum(static_cast<float*>(destination), sources, count, use);
      return reduce_as(op, static_cast<float*>(destination), sources, count);
    case DType::kInt64: return reduce_as(op, static_cast<std::int64_t*>(destination), sources, count);
    case DType::kInt32: return reduce_as(op, static_cast<std::int32_t*>(destination), sources, count);
    case DType::kUInt64: return reduce_as(op, static_cast<std::uint64_t*>(destination), sources, count);
    default: throw InternalError(fmt::format("reduce: no reduction for {}", name_of(dtype)));
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

}  // namespace tessera
