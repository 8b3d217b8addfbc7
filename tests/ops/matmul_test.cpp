#include "runtime/ops/matmul.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/ops/matmul_bench.h"
#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

struct Sizes {
  std::int64_t tokens, inputs, outputs;
};

// Tails on every side of the tiles of 192 x 192 x 256, single rows and columns, and more than one block of panels.
const Sizes kProductSizes[] = {{1, 1, 1},     {1, 7, 17},    {7, 1, 15},      {15, 16, 1},     {16, 17, 67},
                               {67, 64, 193}, {193, 67, 64}, {192, 256, 192}, {193, 257, 191}, {5, 1500, 3100},
                               {3100, 5, 30}, {30, 3100, 5}, {3100, 2, 3100}};

// A sum of n products, each rounded once and added with one rounding, is off by at most about n ulp of the sum of
// magnitudes; sums in order stay far below.
void expect_product(const Tensor& c, const std::function<double(std::int64_t, std::int64_t, std::int64_t, bool)>& term,
                    std::int64_t rows, std::int64_t columns, std::int64_t depth,
                    const std::function<double(std::int64_t, std::int64_t)>& start) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = start(i, j);
      double magnitude = std::abs(sum);
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += term(i, j, k, false);
        magnitude += term(i, j, k, true);
      }
      ASSERT_NEAR(c.at(i, j), sum, 1e-6 * magnitude)
          << "at " << i << ", " << j << " of " << rows << " x " << columns << " x " << depth;
    }
  }
}

double product_of(float a, float b, bool magnitude) {
  const double p = static_cast<double>(a) * static_cast<double>(b);
  return magnitude ? std::abs(p) : p;
}

TEST(Matmul, ForwardIsTheProductWithTheTransposedWeightPlusTheBias) {
  const Cpu cpu;
  for (const auto& [tokens, inputs, outputs] : kProductSizes) {
    const Tensor x = random_tensor({tokens, inputs}, 1);
    const Tensor w = random_tensor({outputs, inputs}, 2);
    const Tensor bias = random_tensor({outputs}, 3);
    Tensor y({tokens, outputs}, 1e30F);
    linear_forward(cpu.stream(), {.x = x.view(), .w = w.view(), .bias = bias.view(), .y = y.view()});
    const auto term = [&](auto i, auto j, auto k, bool m) { return product_of(x.at(i, k), w.at(j, k), m); };
    expect_product(y, term, tokens, outputs, inputs, [&](auto, auto j) { return bias[j]; });
    linear_forward(cpu.stream(), {.x = x.view(), .w = w.view(), .y = y.view()});
    expect_product(y, term, tokens, outputs, inputs, [](auto, auto) { return 0.0; });
  }
}

TEST(Matmul, InputGradientAssignsOrAdds) {
  const Cpu cpu;
  for (const auto& [tokens, inputs, outputs] : kProductSizes) {
    const Tensor dy = random_tensor({tokens, outputs}, 4);
    const Tensor w = random_tensor({outputs, inputs}, 5);
    const Tensor start = random_tensor({tokens, inputs}, 6);
    const auto term = [&](auto i, auto j, auto k, bool m) { return product_of(dy.at(i, k), w.at(k, j), m); };
    Tensor dx = start;
    linear_backward_input(cpu.stream(), {.dy = dy.view(), .w = w.view(), .dx = dx.view()});
    expect_product(dx, term, tokens, inputs, outputs, [](auto, auto) { return 0.0; });
    dx = start;
    linear_backward_input(cpu.stream(), {.dy = dy.view(), .w = w.view(), .dx = dx.view(), .accumulate = true});
    expect_product(dx, term, tokens, inputs, outputs, [&](auto i, auto j) { return start.at(i, j); });
  }
}

TEST(Matmul, WeightAndBiasGradientsAssignOrAdd) {
  const Cpu cpu;
  for (const auto& [tokens, inputs, outputs] : kProductSizes) {
    const Tensor dy = random_tensor({tokens, outputs}, 7);
    const Tensor x = random_tensor({tokens, inputs}, 8);
    const Tensor start = random_tensor({outputs, inputs}, 9);
    const Tensor bias_start = random_tensor({outputs}, 10);
    const auto term = [&](auto i, auto j, auto k, bool m) { return product_of(dy.at(k, i), x.at(k, j), m); };
    for (const bool accumulate : {false, true}) {
      Tensor dw = start;
      Tensor dbias = bias_start;
      linear_backward_weight(
          cpu.stream(),
          {.dy = dy.view(), .x = x.view(), .dw = dw.view(), .dbias = dbias.view(), .accumulate = accumulate});
      expect_product(dw, term, outputs, inputs, tokens,
                     [&](auto i, auto j) { return accumulate ? start.at(i, j) : 0.0; });
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = accumulate ? bias_start[o] : 0.0;
        for (std::int64_t t = 0; t < tokens; ++t) sum += dy.at(t, o);
        ASSERT_NEAR(dbias[o], sum, 1e-5 * std::sqrt(static_cast<double>(tokens))) << o;
      }
    }
  }
}

TEST(Matmul, BiasGradientOfOnesCountsTheTokens) {
  const Cpu cpu;
  const Tensor dy({100, 33}, 1.0F);
  const Tensor x({100, 3}, 1.0F);
  Tensor dw({33, 3});
  Tensor dbias({33}, 0.5F);
  linear_backward_weight(cpu.stream(),
                         {.dy = dy.view(), .x = x.view(), .dw = dw.view(), .dbias = dbias.view(), .accumulate = true});
  EXPECT_EQ(dbias.data, std::vector<float>(33, 100.5F));
  EXPECT_EQ(dw.data, std::vector<float>(99, 0.0F + 100.0F));
}

// The shapes for which the library's own threads change bits (small outputs, long sums) among them.
const Sizes kAwkward[] = {{256, 3072, 64}, {16, 4096, 32}, {1024, 3072, 384}, {67, 129, 201}};

TEST(Matmul, BitsDoNotDependOnThreads) {
  for (const auto& [tokens, inputs, outputs] : kAwkward) {
    const Tensor x = random_tensor({tokens, inputs}, 11);
    const Tensor w = random_tensor({outputs, inputs}, 12);
    const Tensor dy = random_tensor({tokens, outputs}, 13);
    const Tensor bias = random_tensor({outputs}, 14);
    std::vector<Tensor> first;
    for (const int threads : {1, 2, 3, 4}) {
      const Cpu cpu(threads);
      std::vector<Tensor> results = {Tensor({tokens, outputs}), Tensor({tokens, inputs}, 0.25F),
                                     Tensor({outputs, inputs}, 0.25F), Tensor({outputs}, 0.25F)};
      linear_forward(cpu.stream(), {.x = x.view(), .w = w.view(), .bias = bias.view(), .y = results[0].view()});
      linear_backward_input(cpu.stream(),
                            {.dy = dy.view(), .w = w.view(), .dx = results[1].view(), .accumulate = true});
      linear_backward_weight(
          cpu.stream(),
          {.dy = dy.view(), .x = x.view(), .dw = results[2].view(), .dbias = results[3].view(), .accumulate = true});
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(same_bits(results[i].data, first[i].data)) << "result " << i << " at " << threads << " threads";
      }
    }
  }
}

TEST(Matmul, AnElementsBitsDependOnItsRowAndColumnAlone) {
  const Cpu cpu;
  constexpr std::int64_t kTokens = 401;
  constexpr std::int64_t kInputs = 301;
  constexpr std::int64_t kOutputs = 211;
  const Tensor x = random_tensor({kTokens, kInputs}, 15);
  const Tensor w = random_tensor({kOutputs, kInputs}, 16);
  Tensor whole({kTokens, kOutputs});
  linear_forward(cpu.stream(), {.x = x.view(), .w = w.view(), .y = whole.view()});
  for (const std::int64_t rows : {1, 2, 3, 5, 8, 13, 64, 191, 193, 400}) {
    for (const std::int64_t columns : {1, 2, 15, 16, 47, 49, 192, 210}) {
      // The last `rows` tokens against the last `columns` outputs.
      Tensor part({rows, columns});
      linear_forward(cpu.stream(), {.x = {x.data.data() + (kTokens - rows) * kInputs, {rows, kInputs}},
                                    .w = {w.data.data() + (kOutputs - columns) * kInputs, {columns, kInputs}},
                                    .y = part.view()});
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          const float expected = whole.at(kTokens - rows + i, kOutputs - columns + j);
          ASSERT_EQ(part.at(i, j), expected) << i << ", " << j << " of " << rows << " x " << columns;
        }
      }
    }
  }
}

TEST(Matmul, RepeatedInputRowsGiveEqualBits) {
  const Cpu cpu;
  const Tensor row = random_tensor({1, 97}, 17);
  Tensor x({200, 97});
  for (std::int64_t i = 0; i < 200; ++i) std::copy(row.data.begin(), row.data.end(), x.data.begin() + i * 97);
  const Tensor w = random_tensor({50, 97}, 18);
  Tensor y({200, 50});
  linear_forward(cpu.stream(), {.x = x.view(), .w = w.view(), .y = y.view()});
  for (std::int64_t i = 1; i < 200; ++i) {
    for (std::int64_t j = 0; j < 50; ++j) ASSERT_EQ(y.at(i, j), y.at(0, j)) << i << ", " << j;
  }
}

TEST(Matmul, EmptyBatchesDoNothing) {
  const Cpu cpu;
  const Tensor w = random_tensor({3, 2}, 19);
  Tensor x({0, 2});
  Tensor y({0, 3});
  EXPECT_NO_THROW(linear_forward(cpu.stream(), {.x = x.view(), .w = w.view(), .y = y.view()}));
}

TEST(Matmul, ShapesThatDoNotFitAreRefused) {
  const Cpu cpu;
  const Tensor x({2, 5});
  const Tensor w({3, 4});
  Tensor y({2, 3});
  EXPECT_THROW(linear_forward(cpu.stream(), {.x = x.view(), .w = w.view(), .y = y.view()}), InternalError);
}

TEST(Matmul, ScratchIsWhatWasPredictedAndGoesBackToTheAllocator) {
  // One block of panels, several in each direction, and several in two of them.
  constexpr Sizes kScratchSizes[] = {{300, 100, 200}, {5, 1500, 3100}, {3100, 5, 30}, {30, 3100, 5}, {3100, 2, 3100}};
  for (const auto& [tokens, inputs, outputs] : kScratchSizes) {
    const Tensor x = random_tensor({tokens, inputs}, 20);
    const Tensor w = random_tensor({outputs, inputs}, 21);
    Tensor y({tokens, outputs});
    Tensor dx({tokens, inputs});
    Tensor dw({outputs, inputs});
    const auto peak = [&](const auto& product) {
      Cpu cpu;
      product(cpu.stream());
      const MemoryStats stats = cpu.device().allocator().stats();
      EXPECT_EQ(stats.total.allocated, 0);
      return stats.total.allocated_peak;
    };
    const LinearWorkspace predicted = linear_workspace(tokens, inputs, outputs, false);
    EXPECT_EQ(peak([&](auto s) { linear_forward(s, {.x = x.view(), .w = w.view(), .y = y.view()}); }),
              predicted.forward)
        << tokens << " " << inputs << " " << outputs;
    EXPECT_EQ(peak([&](auto s) { linear_backward_input(s, {.dy = y.view(), .w = w.view(), .dx = dx.view()}); }),
              predicted.backward_input)
        << tokens << " " << inputs << " " << outputs;
    EXPECT_EQ(peak([&](auto s) { linear_backward_weight(s, {.dy = y.view(), .x = x.view(), .dw = dw.view()}); }),
              predicted.backward_weight)
        << tokens << " " << inputs << " " << outputs;
    EXPECT_EQ(linear_workspace_bytes(tokens, inputs, outputs),
              std::max({predicted.forward, predicted.backward_input, predicted.backward_weight}));
  }
}

TEST(Matmul, TheLibrarysPlainProductAgrees) {
  const Tensor a = random_tensor({20, 30}, 22);
  const Tensor b = random_tensor({40, 30}, 23);
  Tensor c({20, 40});
  library_matmul(1, false, true, 20, 40, 30, a.data.data(), b.data.data(), c.data.data());
  expect_product(
      c, [&](auto i, auto j, auto k, bool m) { return product_of(a.at(i, k), b.at(j, k), m); }, 20, 40, 30,
      [](auto, auto) { return 0.0; });
  Tensor d({30, 30});
  library_matmul(1, true, false, 30, 30, 20, a.data.data(), a.data.data(), d.data.data());
  expect_product(
      d, [&](auto i, auto j, auto k, bool m) { return product_of(a.at(k, i), a.at(k, j), m); }, 30, 30, 20,
      [](auto, auto) { return 0.0; });
}

}  // namespace
}  // namespace tessera::ops
