#include "runtime/ops/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

void check_range(const std::int32_t* tokens, std::int64_t count, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < count; ++t) {
    if (tokens[t] < 0 || tokens[t] >= vocabulary) {
      throw InternalError(fmt::format("embedding: token {} at row {}, vocabulary {}", tokens[t], t, vocabulary));
    }
  }
}

void fill_zero(ThreadPool& pool, float* data, std::int64_t n) {
  constexpr std::int64_t kChunk = 1 << 18;
  for_chunks(pool, n, kChunk,
             [&](std::int64_t first, std::int64_t last) { std::fill(data + first, data + last, 0.0F); });
}

}  // namespace

void embedding_forward(StreamView stream, const EmbeddingForward& args) {
  stream.enqueue([stream, args] {
    const MatrixShape shape = matrix_shape(args.tokens.shape);
    const MatrixShape table = matrix_shape(args.token_table.shape);
    const std::int32_t* tokens = args.tokens.as<std::int32_t>();
    const std::int64_t features = table.columns;
    const std::int64_t rows = shape.rows * shape.columns;
    check_range(tokens, rows, table.rows);
    for_chunks(cpu_device(stream).pool(), rows, rows_per_task(features), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        const float* token_row = args.token_table.as<float>() + tokens[t] * features;
        float* y = args.y.as<float>() + t * features;
        if (args.position_table) {
          kernels().add(token_row, args.position_table.as<float>() + t % shape.columns * features, y, features);
        } else {
          std::memcpy(y, token_row, static_cast<std::size_t>(features) * sizeof(float));
        }
      }
    });
  });
}

void embedding_backward(StreamView stream, const EmbeddingBackward& args) {
  stream.enqueue([stream, args] {
    const MatrixShape shape = matrix_shape(args.tokens.shape);
    const MatrixShape table = matrix_shape(args.dtoken_table.shape);
    const std::int32_t* tokens = args.tokens.as<std::int32_t>();
    const float* dy = args.dy.as<float>();
    const std::int64_t features = table.columns;
    const std::int64_t rows = shape.rows * shape.columns;
    ThreadPool& pool = cpu_device(stream).pool();
    check_range(tokens, rows, table.rows);

    float* dtoken = args.dtoken_table.as<float>();
    if (!args.accumulate) fill_zero(pool, dtoken, table.rows * features);
    // Each task owns some columns of the whole table: a token that occurs twice is added in order, by one thread.
    constexpr std::int64_t kColumns = 64;
    for_chunks(pool, features, kColumns, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = 0; t < rows; ++t) {
        float* out = dtoken + tokens[t] * features + first;
        kernels().add(out, dy + t * features + first, out, last - first);
      }
    });

    if (!args.dposition_table) return;
    float* dposition = args.dposition_table.as<float>();
    const std::int64_t positions = shape.columns;
    for_chunks(pool, positions, rows_per_task(features), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t p = first; p < last; ++p) {
        float* out = dposition + p * features;
        if (!args.accumulate) std::fill(out, out + features, 0.0F);
        for (std::int64_t b = 0; b < shape.rows; ++b)
          kernels().add(out, dy + (b * positions + p) * features, out, features);
      }
    });
    if (!args.accumulate) {
      const std::int64_t all = matrix_shape(args.dposition_table.shape).rows;
      fill_zero(pool, dposition + positions * features, (all - positions) * features);
    }
  });
}

}  // namespace tessera::ops::cpu
