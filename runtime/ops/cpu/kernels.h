// Our own loops, compiled once per instruction set. Every variant computes the same bits: 16 logical fp32 lanes,
// multiplication and addition rounded apart, sums over lanes by one fixed tree.
//
// This header is included by files that are compiled for AVX-512: it must stay free of standard inline functions, which
// the linker could otherwise keep in their AVX-512 form for the whole program.
#pragma once

#include <cstdint>

namespace tessera::ops::cpu {

// One row range of a norm. Pointers are to the first row; gain, bias, delta, residual_out and mean may be null where
// the operator allows it.
struct NormForwardRows {
  const float* residual;
  const float* delta;
  const float* gain;
  const float* bias;
  float* residual_out;
  float* y;
  float* mean;
  float* rstd;
  std::int64_t rows;
  std::int64_t features;
  float eps;
};

// y alone, from saved statistics.
struct NormApplyRows {
  const float* residual;
  const float* gain;
  const float* bias;
  const float* mean;
  const float* rstd;
  float* y;
  std::int64_t rows;
  std::int64_t features;
};

// dgain_part and dbias_part [features] receive the sums over these rows alone (assigned); dbias_part may be null.
struct NormBackwardRows {
  const float* dy;
  const float* residual;
  const float* gain;
  const float* mean;
  const float* rstd;
  float* dx;
  float* dgain_part;
  float* dbias_part;
  std::int64_t rows;
  std::int64_t features;
  bool accumulate_input;
};

// One row of softmax cross-entropy; see ops::CrossEntropy for the formula.
struct CrossEntropyRow {
  float* logits;
  std::int64_t vocabulary;
  std::int64_t target;
  float label_smoothing;
  float z_loss;
  float gradient_scale;
  bool with_gradient;
};

struct AdamWRange {
  float* parameter;
  float* m;
  float* v;
  const float* gradient;
  std::int64_t n;
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, denominator_scale, eps, decay;
};

// One block of scores of causal attention, forward. scores [rows, keys] with leading dimension ld, of query rows
// first_query + r against keys first_key + j; keys after the query do not exist. On return scores holds
// exp(score - new maximum), 0 for keys that do not exist; row_max and row_sum [rows] are brought up to date, and
// rescale[r] is what the row's output so far must be multiplied by.
struct SoftmaxBlock {
  float* scores;
  std::int64_t ld;
  std::int64_t rows;
  std::int64_t keys;
  std::int64_t first_query;
  std::int64_t first_key;
  float* row_max;
  float* row_sum;
  float* rescale;
};

// Backward of one block: scores become probabilities P = exp(score - lse), dscores (holding dP) become P (dP - delta).
struct SoftmaxBackwardBlock {
  float* scores;
  float* dscores;
  std::int64_t ld;
  std::int64_t rows;
  std::int64_t keys;
  std::int64_t first_query;
  std::int64_t first_key;
  const float* lse;
  const float* delta;
};

constexpr int kNumActivations = 6;
constexpr int kNumNorms = 2;

struct Kernels {
  // By ActivationKind. up is null for kinds without a gate.
  void (*activation_forward[kNumActivations])(const float* x, const float* up, float* y, std::int64_t n);
  void (*activation_backward[kNumActivations])(const float* dy, const float* x, const float* up, float* dx, float* dup,
                                               std::int64_t n);
  // y = a + b.
  void (*add)(const float* a, const float* b, float* y, std::int64_t n);
  // y = x * factor.
  void (*scale)(const float* x, float factor, float* y, std::int64_t n);

  // By NormKind.
  void (*norm_forward[kNumNorms])(const NormForwardRows& args);
  void (*norm_apply[kNumNorms])(const NormApplyRows& args);
  void (*norm_backward[kNumNorms])(const NormBackwardRows& args);

  // sums[c] = sum over rows of x[r, c], in row order; the first row assigns.
  void (*column_sums)(const float* x, std::int64_t ld, std::int64_t rows, std::int64_t columns, float* sums);

  // Returns the row's loss.
  float (*cross_entropy_row)(const CrossEntropyRow& args);

  void (*adamw)(const AdamWRange& args);
  // destination[i] = tree over the sources; num_sources >= 1.
  void (*tree_sum)(float* destination, const float* const* sources, std::int64_t num_sources, std::int64_t n);

  // destination[r, c] = source[r, c]; the columns from `columns` to `padded_columns` become 0.
  void (*pack)(const float* source, std::int64_t source_ld, std::int64_t rows, std::int64_t columns,
               std::int64_t padded_columns, float* destination, std::int64_t destination_ld);
  // destination[c, r] = source[r, c] for rows x columns of the source; destination columns from `rows` to `padded_rows`
  // become 0.
  void (*pack_transposed)(const float* source, std::int64_t source_ld, std::int64_t rows, std::int64_t columns,
                          std::int64_t padded_rows, float* destination, std::int64_t destination_ld);

  void (*softmax_block)(const SoftmaxBlock& args);
  void (*softmax_backward_block)(const SoftmaxBackwardBlock& args);
  // Sum over i of a[i] * b[i].
  float (*dot)(const float* a, const float* b, std::int64_t n);
  // One head's row: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) over half_dim pairs; sign -1 rotates back.
  void (*rope_row)(float* x, const float* cosines, const float* sines, std::int64_t half_dim, float sign);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

}  // namespace tessera::ops::cpu
