#include "runtime/ops/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/product.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

void run_cross_entropy(StreamView stream, float* logits, std::int64_t rows, std::int64_t vocabulary,
                       const std::int32_t* targets, float* losses, const CrossEntropyOptions& options,
                       float gradient_scale, bool with_gradient) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t target = targets[row];
    if (target != options.ignore_index && (target < 0 || target >= vocabulary)) {
      throw InternalError(fmt::format("cross_entropy: target {} at row {}, vocabulary {}", target, row, vocabulary));
    }
  }
  for_chunks(cpu_device(stream).pool(), rows, rows_per_task(vocabulary), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      float* z = logits + row * vocabulary;
      if (targets[row] == options.ignore_index) {
        losses[row] = 0.0F;
        // Assigned, not multiplied: what is not a number in an ignored row must not survive.
        if (with_gradient) std::fill(z, z + vocabulary, 0.0F);
        continue;
      }
      losses[row] = kernels().cross_entropy_row({.logits = z,
                                                 .vocabulary = vocabulary,
                                                 .target = targets[row],
                                                 .label_smoothing = options.label_smoothing,
                                                 .z_loss = options.z_loss,
                                                 .gradient_scale = gradient_scale,
                                                 .with_gradient = with_gradient});
    }
  });
}

}  // namespace

void cross_entropy(StreamView stream, const CrossEntropy& args) {
  stream.enqueue([stream, args] {
    const MatrixShape shape = matrix_shape(args.logits.shape);
    run_cross_entropy(stream, args.logits.as<float>(), shape.rows, shape.columns, args.targets.as<std::int32_t>(),
                      args.losses.as<float>(), args.options, args.gradient_scale, args.with_gradient);
  });
}

void head_loss(StreamView stream, const HeadLoss& args) {
  stream.enqueue([stream, args] {
    const auto [all_rows, features] = matrix_shape(args.x.shape);
    const std::int64_t vocabulary = matrix_shape(args.w.shape).rows;
    const float* w = args.w.as<float>();
    const Buffer logits = cpu_device(stream).allocator().allocate(
        static_cast<std::size_t>(head_loss_workspace_bytes(all_rows, vocabulary)), MemoryCategory::kWorkspace, stream);
    float* z = logits.as<float>();
    for (std::int64_t first = 0; first < all_rows; first += kHeadChunkRows) {
      const std::int64_t rows = std::min(kHeadChunkRows, all_rows - first);
      const float* x = args.x.as<float>() + first * features;
      multiply(
          stream,
          {.m = rows, .n = vocabulary, .k = features, .a = {x, features, false}, .b = {w, features, true}, .c = z});
      run_cross_entropy(stream, z, rows, vocabulary, args.targets.as<std::int32_t>() + first,
                        args.losses.as<float>() + first, args.options, args.gradient_scale, args.with_gradient);
      if (!args.with_gradient) continue;
      multiply(stream, {.m = rows,
                        .n = features,
                        .k = vocabulary,
                        .a = {z, vocabulary, false},
                        .b = {w, features, false},
                        .c = args.dx.as<float>() + first * features});
      multiply(stream, {.m = vocabulary,
                        .n = features,
                        .k = rows,
                        .a = {z, vocabulary, true},
                        .b = {x, features, false},
                        .c = args.dw.as<float>(),
                        .accumulate = args.accumulate_weight || first > 0});
    }
  });
}

}  // namespace tessera::ops::cpu
