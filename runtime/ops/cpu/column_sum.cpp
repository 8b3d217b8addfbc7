#include "runtime/ops/cpu/column_sum.h"

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {

void combine_parts(StreamView stream, const float* parts, std::int64_t num_parts, std::int64_t stride,
                   std::int64_t columns, float* out, bool accumulate) {
  constexpr std::int64_t kColumns = 512;
  for_chunks(cpu_device(stream).pool(), columns, kColumns, [&](std::int64_t first, std::int64_t last) {
    if (accumulate) {
      float sums[kColumns];
      kernels().column_sums(parts + first, stride, num_parts, last - first, sums);
      kernels().add(out + first, sums, out + first, last - first);
    } else {
      kernels().column_sums(parts + first, stride, num_parts, last - first, out + first);
    }
  });
}

void column_sums(StreamView stream, const float* x, std::int64_t rows, std::int64_t columns, float* out,
                 bool accumulate) {
  CpuDevice& device = cpu_device(stream);
  const std::int64_t num_parts = ceil_div(rows, kRowChunk);
  const Buffer parts = device.allocator().allocate(static_cast<std::size_t>(num_parts * columns) * sizeof(float),
                                                   MemoryCategory::kWorkspace, stream);
  for_chunks(device.pool(), rows, kRowChunk, [&](std::int64_t first, std::int64_t last) {
    kernels().column_sums(x + first * columns, columns, last - first, columns,
                          parts.as<float>() + first / kRowChunk * columns);
  });
  combine_parts(stream, parts.as<float>(), num_parts, columns, columns, out, accumulate);
}

std::int64_t column_sums_workspace_bytes(std::int64_t rows, std::int64_t columns) {
  return round_up(ceil_div(rows, kRowChunk) * columns * static_cast<std::int64_t>(sizeof(float)), 64);
}

}  // namespace tessera::ops::cpu
