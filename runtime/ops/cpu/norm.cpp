#include "runtime/ops/norm.h"

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/column_sum.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

static_assert(static_cast<int>(NormKind::kLayerNorm) == 0 && static_cast<int>(NormKind::kRmsNorm) == 1);

template <typename T>
T* shifted(T* pointer, std::int64_t elements) {
  return pointer == nullptr ? nullptr : pointer + elements;
}

}  // namespace

void norm_forward(StreamView stream, const NormForward& args) {
  stream.enqueue([stream, args] {
    const auto [rows, features] = matrix_shape(args.residual.shape);
    const auto kernel = kernels().norm_forward[static_cast<int>(args.kind)];
    const std::int64_t width = features;
    for_chunks(cpu_device(stream).pool(), rows, rows_per_task(width), [&](std::int64_t first, std::int64_t last) {
      const std::int64_t offset = first * width;
      kernel({.residual = args.residual.as<float>() + offset,
              .delta = shifted(args.delta.as<float>(), offset),
              .gain = args.gain.as<float>(),
              .bias = args.bias.as<float>(),
              .residual_out = shifted(args.residual_out.as<float>(), offset),
              .y = args.y.as<float>() + offset,
              .mean = shifted(args.mean.as<float>(), first),
              .rstd = args.rstd.as<float>() + first,
              .rows = last - first,
              .features = width,
              .eps = args.eps});
    });
  });
}

void norm_recompute(StreamView stream, const NormRecompute& args) {
  stream.enqueue([stream, args] {
    const auto [rows, features] = matrix_shape(args.residual.shape);
    const auto kernel = kernels().norm_apply[static_cast<int>(args.kind)];
    const std::int64_t width = features;
    for_chunks(cpu_device(stream).pool(), rows, rows_per_task(width), [&](std::int64_t first, std::int64_t last) {
      kernel({.residual = args.residual.as<float>() + first * width,
              .gain = args.gain.as<float>(),
              .bias = args.bias.as<float>(),
              .mean = shifted(args.mean.as<float>(), first),
              .rstd = args.rstd.as<float>() + first,
              .y = args.y.as<float>() + first * width,
              .rows = last - first,
              .features = width});
    });
  });
}

void norm_backward(StreamView stream, const NormBackward& args) {
  stream.enqueue([stream, args] {
    const auto [rows, features] = matrix_shape(args.residual.shape);
    const auto kernel = kernels().norm_backward[static_cast<int>(args.kind)];
    const std::int64_t width = features;
    CpuDevice& device = cpu_device(stream);
    // Sums of each chunk of rows: gains first, then biases.
    const std::int64_t num_parts = ceil_div(rows, kRowChunk);
    const Buffer parts = device.allocator().allocate(static_cast<std::size_t>(2 * num_parts * width) * sizeof(float),
                                                     MemoryCategory::kWorkspace, stream);
    float* gain_parts = parts.as<float>();
    float* bias_parts = args.dbias ? gain_parts + num_parts * width : nullptr;
    for_chunks(device.pool(), rows, kRowChunk, [&](std::int64_t first, std::int64_t last) {
      const std::int64_t part = first / kRowChunk;
      kernel({.dy = args.dy.as<float>() + first * width,
              .residual = args.residual.as<float>() + first * width,
              .gain = args.gain.as<float>(),
              .mean = shifted(args.mean.as<float>(), first),
              .rstd = args.rstd.as<float>() + first,
              .dx = args.dx.as<float>() + first * width,
              .dgain_part = gain_parts + part * width,
              .dbias_part = shifted(bias_parts, part * width),
              .rows = last - first,
              .features = width,
              .accumulate_input = args.accumulate_input});
    });
    combine_parts(stream, gain_parts, num_parts, width, width, args.dgain.as<float>(), args.accumulate_parameters);
    if (args.dbias) {
      combine_parts(stream, bias_parts, num_parts, width, width, args.dbias.as<float>(), args.accumulate_parameters);
    }
  });
}

}  // namespace tessera::ops::cpu
