#include "runtime/ops/optimizer_ops.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops {
namespace cpu {

void adamw(StreamView stream, const AdamW& args) {
  stream.enqueue([stream, args] {
    const auto n = static_cast<std::int64_t>(args.parameter.size());
    for_chunks(cpu_device(stream).pool(), n, kElementChunk, [&](std::int64_t first, std::int64_t last) {
      kernels().adamw({.parameter = args.parameter.data() + first,
                       .m = args.m.data() + first,
                       .v = args.v.data() + first,
                       .gradient = args.gradient.data() + first,
                       .n = last - first,
                       .gradient_scale = args.gradient_scale,
                       .beta1 = args.beta1,
                       .one_minus_beta1 = args.one_minus_beta1,
                       .beta2 = args.beta2,
                       .one_minus_beta2 = args.one_minus_beta2,
                       .step_size = args.step_size,
                       .denominator_scale = args.denominator_scale,
                       .eps = args.eps,
                       .decay = args.decay});
    });
  });
}

void add_in_place(StreamView stream, std::span<float> destination, std::span<const float> source) {
  stream.enqueue([stream, destination, source] {
    const auto n = static_cast<std::int64_t>(destination.size());
    for_chunks(cpu_device(stream).pool(), n, kElementChunk, [&](std::int64_t first, std::int64_t last) {
      kernels().add(destination.data() + first, source.data() + first, destination.data() + first, last - first);
    });
  });
}

ExactSum exact_sum(StreamView stream, std::span<const float> values, bool squares) {
  ExactSum total;
  stream.enqueue([stream, values, squares, &total] {
    constexpr std::int64_t kChunk = 1 << 18;
    const auto n = static_cast<std::int64_t>(values.size());
    std::vector<ExactSum> parts(static_cast<std::size_t>(ceil_div(n, kChunk)));
    for_chunks(cpu_device(stream).pool(), n, kChunk, [&](std::int64_t first, std::int64_t last) {
      ExactSum& part = parts[static_cast<std::size_t>(first / kChunk)];
      const auto count = static_cast<std::size_t>(last - first);
      if (squares) {
        part.add_squares(values.data() + first, count);
      } else {
        part.add(values.data() + first, count);
      }
    });
    for (const ExactSum& part : parts) total.merge(part);
  });
  stream.synchronize();
  return total;
}

}  // namespace cpu

void tree_sum(std::span<float> destination, std::span<const float* const> sources) {
  require(!sources.empty(), "tree_sum: a tree has leaves");
  cpu::kernels().tree_sum(destination.data(), sources.data(), static_cast<std::int64_t>(sources.size()),
                          static_cast<std::int64_t>(destination.size()));
}

void tree_sum(std::span<std::int64_t> destination, std::span<const std::int64_t* const> sources) {
  require(!sources.empty(), "tree_sum: a tree has leaves");
  // Integers add up to the same in any order; unsigned, since limbs may wrap on their way. Blocks stay in cache.
  constexpr std::size_t kBlock = 1024;
  std::array<std::uint64_t, kBlock> sums;
  for (std::size_t first = 0; first < destination.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, destination.size() - first);
    for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<std::uint64_t>(sources[0][first + i]);
    for (std::size_t k = 1; k < sources.size(); ++k) {
      const std::int64_t* source = sources[k] + first;
      for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<std::uint64_t>(source[i]);
    }
    for (std::size_t i = 0; i < count; ++i) destination[first + i] = static_cast<std::int64_t>(sums[i]);
  }
}

}  // namespace tessera::ops
