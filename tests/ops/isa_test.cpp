#include "runtime/ops/isa.h"

#include "runtime/base/error.h"
#include "runtime/base/float_environment.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/matmul.h"
#include "tests/ops/op_test.h"

namespace tessera::ops::cpu {
namespace {

constexpr std::int64_t kIsaSizes[] = {1, 7, 15, 16, 17, 67, 300};

// Runs a kernel of the portable table and of every table this processor can run; what they write must be equal bit by bit.
void expect_equal_bits(const std::function<std::vector<float>(const Kernels&)>& run, const char* what) {
  const std::vector<float> expected = run(kernels_of(Isa::kPortable));
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa > detect_isa()) continue;
    EXPECT_TRUE(same_bits(run(kernels_of(isa)), expected)) << what << " on " << name_of(isa);
  }
}

std::vector<float> join(std::initializer_list<const Tensor*> tensors) {
  std::vector<float> all;
  for (const Tensor* tensor : tensors) all.insert(all.end(), tensor->data.begin(), tensor->data.end());
  return all;
}

TEST(Isa, ActivationsHaveEqualBitsOnEveryInstructionSet) {
  for (const std::int64_t n : kIsaSizes) {
    // Wide enough to reach every branch: underflow, both signs, the ends of the bounded ranges.
    const Tensor x = random_tensor({n}, 1, 40.0F);
    const Tensor up = random_tensor({n}, 2);
    const Tensor dy = random_tensor({n}, 3);
    for (int kind = 0; kind < kNumActivations; ++kind) {
      expect_equal_bits(
          [&](const Kernels& k) {
            Tensor y({n});
            Tensor dx({n});
            Tensor dup({n});
            k.activation_forward[kind](x.data.data(), up.data.data(), y.data.data(), n);
            k.activation_backward[kind](dy.data.data(), x.data.data(), up.data.data(), dx.data.data(), dup.data.data(),
                                        n);
            return join({&y, &dx, &dup});
          },
          "activation");
    }
  }
}

TEST(Isa, NormsHaveEqualBitsOnEveryInstructionSet) {
  for (const std::int64_t n : kIsaSizes) {
    const Tensor x = random_tensor({3, n}, 4, 2.0F);
    const Tensor delta = random_tensor({3, n}, 5);
    const Tensor gain = random_tensor({n}, 6);
    const Tensor bias = random_tensor({n}, 7);
    for (int kind = 0; kind < kNumNorms; ++kind) {
      expect_equal_bits(
          [&](const Kernels& k) {
            Tensor sum({3, n});
            Tensor y({3, n});
            Tensor mean({3});
            Tensor rstd({3});
            k.norm_forward[kind]({.residual = x.data.data(),
                                  .delta = delta.data.data(),
                                  .gain = gain.data.data(),
                                  .bias = bias.data.data(),
                                  .residual_out = sum.data.data(),
                                  .y = y.data.data(),
                                  .mean = mean.data.data(),
                                  .rstd = rstd.data.data(),
                                  .rows = 3,
                                  .features = n,
                                  .eps = 1e-5F});
            Tensor again({3, n});
            k.norm_apply[kind]({.residual = sum.data.data(),
                                .gain = gain.data.data(),
                                .bias = bias.data.data(),
                                .mean = mean.data.data(),
                                .rstd = rstd.data.data(),
                                .y = again.data.data(),
                                .rows = 3,
                                .features = n});
            Tensor dx({3, n}, 0.5F);
            Tensor dgain({n});
            Tensor dbias({n});
            k.norm_backward[kind]({.dy = delta.data.data(),
                                   .residual = sum.data.data(),
                                   .gain = gain.data.data(),
                                   .mean = mean.data.data(),
                                   .rstd = rstd.data.data(),
                                   .dx = dx.data.data(),
                                   .dgain_part = dgain.data.data(),
                                   .dbias_part = dbias.data.data(),
                                   .rows = 3,
                                   .features = n,
                                   .accumulate_input = true});
            return join({&sum, &y, &mean, &rstd, &again, &dx, &dgain, &dbias});
          },
          "norm");
    }
  }
}

TEST(Isa, RowAndRangeKernelsHaveEqualBitsOnEveryInstructionSet) {
  for (const std::int64_t n : kIsaSizes) {
    const Tensor a = random_tensor({n}, 8, 20.0F);
    const Tensor b = random_tensor({n}, 9);
    expect_equal_bits(
        [&](const Kernels& k) {
          Tensor z = a;
          Tensor scalars({2});
          scalars[0] = k.cross_entropy_row({.logits = z.data.data(),
                                            .vocabulary = n,
                                            .target = n - 1,
                                            .label_smoothing = 0.1F,
                                            .z_loss = 1e-3F,
                                            .gradient_scale = 0.3F,
                                            .with_gradient = true});
          scalars[1] = k.dot(a.data.data(), b.data.data(), n);
          Tensor sum({n});
          Tensor scaled({n});
          k.add(a.data.data(), b.data.data(), sum.data.data(), n);
          k.scale(a.data.data(), 0.3F, scaled.data.data(), n);
          Tensor parameter = a;
          Tensor m = b;
          Tensor v({n}, 0.25F);
          k.adamw({parameter.data.data(), m.data.data(), v.data.data(), b.data.data(), n, 0.7F, 0.9F, 0.1F, 0.999F,
                   0.001F, 0.01F, 1.1F, 1e-8F, 0.001F});
          return join({&z, &scalars, &sum, &scaled, &parameter, &m, &v});
        },
        "range");
  }
}

TEST(Isa, SumsHaveEqualBitsOnEveryInstructionSet) {
  for (const std::int64_t n : kIsaSizes) {
    const Tensor x = random_tensor({9, n}, 10);
    for (std::int64_t num_sources = 1; num_sources <= 9; ++num_sources) {
      expect_equal_bits(
          [&](const Kernels& k) {
            std::vector<const float*> sources;
            for (std::int64_t s = 0; s < num_sources; ++s) sources.push_back(x.data.data() + s * n);
            Tensor tree({n});
            Tensor columns({n});
            k.tree_sum(tree.data.data(), sources.data(), num_sources, n);
            k.column_sums(x.data.data(), n, num_sources, n, columns.data.data());
            return join({&tree, &columns});
          },
          "sum");
    }
  }
}

TEST(Isa, AttentionKernelsHaveEqualBitsOnEveryInstructionSet) {
  for (const std::int64_t keys : kIsaSizes) {
    constexpr std::int64_t kRows = 5;
    const Tensor scores = random_tensor({kRows, keys}, 11, 30.0F);
    const Tensor dscores = random_tensor({kRows, keys}, 12);
    const Tensor statistics = random_tensor({kRows}, 13);
    const Tensor turned = random_tensor({2 * keys}, 14);
    const Tensor cosines = random_tensor({keys}, 15);
    const Tensor sines = random_tensor({keys}, 16);
    expect_equal_bits(
        [&](const Kernels& k) {
          Tensor s = scores;
          Tensor max = statistics;
          Tensor sum({kRows}, 2.0F);
          Tensor rescale({kRows});
          k.softmax_block(
              {s.data.data(), keys, kRows, keys, 10, 3, max.data.data(), sum.data.data(), rescale.data.data()});
          Tensor p = scores;
          Tensor d = dscores;
          Tensor lse({kRows}, 31.0F);
          k.softmax_backward_block(
              {p.data.data(), d.data.data(), keys, kRows, keys, 10, 3, lse.data.data(), statistics.data.data()});
          Tensor x = turned;
          k.rope_row(x.data.data(), cosines.data.data(), sines.data.data(), keys, -1.0F);
          return join({&s, &max, &sum, &rescale, &p, &d, &x});
        },
        "attention");
  }
}

TEST(Isa, PanelsAreCopiesOnEveryInstructionSet) {
  for (const std::int64_t rows : {1, 15, 16, 37}) {
    for (const std::int64_t columns : {1, 15, 16, 50}) {
      const Tensor x = random_tensor({rows, columns + 3}, 17);
      const std::int64_t padded = columns + 5;
      const std::int64_t padded_rows = rows + 5;
      for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
        if (isa > detect_isa()) continue;
        Tensor panel({rows, padded}, 9.0F);
        Tensor transposed({columns, padded_rows}, 9.0F);
        kernels_of(isa).pack(x.data.data(), columns + 3, rows, columns, padded, panel.data.data(), padded);
        kernels_of(isa).pack_transposed(x.data.data(), columns + 3, rows, columns, padded_rows, transposed.data.data(),
                                        padded_rows);
        for (std::int64_t c = 0; c < padded; ++c) {
          for (std::int64_t r = 0; r < rows; ++r) ASSERT_EQ(panel.at(r, c), c < columns ? x.at(r, c) : 0.0F);
        }
        for (std::int64_t c = 0; c < columns; ++c) {
          for (std::int64_t r = 0; r < padded_rows; ++r) ASSERT_EQ(transposed.at(c, r), r < rows ? x.at(r, c) : 0.0F);
        }
      }
    }
  }
}

TEST(Isa, NamesAreThoseOfTheNumericsRecord) {
  EXPECT_EQ(name_of(Isa::kPortable), "portable");
  EXPECT_EQ(name_of(Isa::kAvx2), "avx2");
  EXPECT_EQ(name_of(Isa::kAvx512), "avx512");
  EXPECT_EQ(matmul_library().substr(0, 7), "oneDNN ");
}

TEST(Isa, WhatTheProcessorLacksIsRefused) {
  if (detect_isa() == Isa::kAvx512) GTEST_SKIP() << "this processor has them all";
  EXPECT_THROW(set_isa(Isa::kAvx512), DeviceError);
}

TEST(Isa, AfterTheFirstProductTheChoiceIsFrozen) {
  const Cpu device;
  const Tensor x({1, 1}, 1.0F);
  Tensor y({1, 1});
  linear_forward(device.stream(), {.x = x.view(), .w = x.view(), .y = y.view()});
  const Isa isa = current_isa();
  EXPECT_NO_THROW(set_isa(isa));
  if (isa == Isa::kPortable) GTEST_SKIP() << "nothing lower to ask for";
  EXPECT_THROW(set_isa(Isa::kPortable), DeviceError);
  EXPECT_EQ(current_isa(), isa);
}

}  // namespace
}  // namespace tessera::ops::cpu
