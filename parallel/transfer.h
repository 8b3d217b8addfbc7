// What every host-memory backend shares: copies, reductions in the fixed order, slices.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "runtime/base/dtype.h"

namespace tessera {

// memcpy that accepts equal pointers (in place) and nothing at all.
void copy_bytes(void* destination, const void* source, std::uint64_t bytes);

// When somebody reads a result.
enum class ResultUse { kLater, kAtOnce };

// destination[i] = op over k of sources[k][i], i < count. fp32 sums follow ops::tree_sum; integer sums wrap modulo 2^n,
// so their order does not matter; min and max of fp32 give NaN if any source is NaN. destination may be one of the
// sources. dtype: fp32, i64, i32 or u64 (the public functions check). Long fp32 sums are streamed (streaming.h) unless they are read at once.
void reduce(DType dtype, ReduceOp op, void* destination, std::span<const void* const> sources, std::uint64_t count,
            ResultUse use = ResultUse::kLater);

// Elements before slice `index`.
std::uint64_t offset_of(const std::vector<std::uint64_t>& counts, int index);

// count elements cut into num_slices neighbours whose lengths differ by at most one.
std::vector<std::uint64_t> even_slices(std::uint64_t count, int num_slices);

}  // namespace tessera
