#include "runtime/ops/optimizer_ops.h"

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

constexpr std::int64_t kOptimizerSizes[] = {1, 7, 15, 16, 17, 67, 16384 * 2 + 3};

TEST(AdamW, UpdatesAgreeWithTheDefinition) {
  const Cpu cpu;
  for (const std::int64_t n : kOptimizerSizes) {
    Tensor parameter = random_tensor({n}, 1);
    Tensor m = random_tensor({n}, 2, 0.1F);
    Tensor v = random_tensor({n}, 3, 0.1F);
    for (float& value : v.data) value = std::abs(value);
    const Tensor gradient = random_tensor({n}, 4);
    const Tensor p0 = parameter;
    const Tensor m0 = m;
    const Tensor v0 = v;
    // Step 3 of rate 1e-2, decay 0.1.
    const double step_size = 1e-2 / (1.0 - 0.9 * 0.9 * 0.9);
    const double denominator_scale = 1.0 / std::sqrt(1.0 - std::pow(0.999, 3));
    adamw(cpu.stream(), {.parameter = parameter.data,
                         .m = m.data,
                         .v = v.data,
                         .gradient = gradient.data,
                         .gradient_scale = 0.5F,
                         .step_size = static_cast<float>(step_size),
                         .denominator_scale = static_cast<float>(denominator_scale),
                         .decay = 1e-3F});
    for (std::int64_t i = 0; i < n; ++i) {
      const double g = 0.5 * gradient[i];
      const double m64 = 0.9 * m0[i] + 0.1 * g;
      const double v64 = 0.999 * v0[i] + 0.001 * g * g;
      const double p64 = p0[i] * (1.0 - 1e-3) - step_size * m64 / (std::sqrt(v64) * denominator_scale + 1e-8);
      ASSERT_NEAR(m[i], m64, 1e-7);
      ASSERT_NEAR(v[i], v64, 1e-7);
      ASSERT_NEAR(parameter[i], p64, 1e-6);
    }
  }
}

TEST(AdamW, TheFirstStepWithoutDecayMovesByTheLearningRate) {
  const Cpu cpu;
  Tensor parameter({40}, 0.0F);
  Tensor m({40});
  Tensor v({40});
  const Tensor gradient = random_tensor({40}, 5);
  adamw(cpu.stream(), {.parameter = parameter.data,
                       .m = m.data,
                       .v = v.data,
                       .gradient = gradient.data,
                       .step_size = static_cast<float>(1e-3 / (1.0 - 0.9)),
                       .denominator_scale = static_cast<float>(1.0 / std::sqrt(1.0 - 0.999))});
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_NEAR(parameter[i], gradient[i] > 0 ? -1e-3 : 1e-3, 1e-8);
}

TEST(AdamW, DecayIsDecoupledFromTheGradient) {
  const Cpu cpu;
  Tensor parameter = random_tensor({33}, 6);
  const Tensor before = parameter;
  Tensor m({33});
  Tensor v({33});
  const Tensor gradient({33});
  // Rate 1e-2 and decay 0.1: every element times 0.999.
  adamw(cpu.stream(), {.parameter = parameter.data,
                       .m = m.data,
                       .v = v.data,
                       .gradient = gradient.data,
                       .step_size = 0.1F,
                       .decay = 1e-3F});
  for (std::int64_t i = 0; i < 33; ++i) EXPECT_NEAR(parameter[i], 0.999 * before[i], 1e-7);
}

TEST(AdamW, BitsDoNotDependOnThreadsOrAlignment) {
  constexpr std::int64_t kN = 50001;
  const Tensor gradient = random_tensor({kN}, 7);
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3, 4}) {
    const Cpu cpu(threads);
    for (const std::size_t shift : {0, 1, 5}) {
      std::vector<Tensor> r;
      for (const std::uint64_t stream : {8, 9, 10}) {
        const Tensor values = random_tensor({kN}, stream);
        Tensor moved({kN + 5});
        std::copy(values.data.begin(), values.data.end(), moved.data.begin() + static_cast<std::ptrdiff_t>(shift));
        r.push_back(moved);
      }
      for (float& value : r[2].data) value = std::abs(value);
      const auto range = [&](Tensor& tensor) { return std::span<float>(tensor.data).subspan(shift, kN); };
      adamw(cpu.stream(), {.parameter = range(r[0]),
                           .m = range(r[1]),
                           .v = range(r[2]),
                           .gradient = gradient.data,
                           .step_size = 1e-3F});
      std::vector<Tensor> results;
      for (Tensor& tensor : r) {
        Tensor result({kN});
        std::copy_n(tensor.data.begin() + static_cast<std::ptrdiff_t>(shift), kN, result.data.begin());
        results.push_back(result);
      }
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(results[i].data, first[i].data));
    }
  }
}

TEST(AddInPlace, AddsTheSource) {
  const Cpu cpu;
  for (const std::int64_t n : kOptimizerSizes) {
    Tensor destination = random_tensor({n}, 11);
    const Tensor before = destination;
    const Tensor source = random_tensor({n}, 12);
    add_in_place(cpu.stream(), destination.data, source.data);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(destination[i], before[i] + source[i]);
  }
  std::vector<float> shorter(3);
  Tensor longer({4});
  EXPECT_THROW(add_in_place(cpu.stream(), longer.data, shorter), InternalError);
}

TEST(ExactSums, AreTheSumWhateverTheOrderAndThreads) {
  constexpr std::int64_t kN = 600001;
  Tensor values({kN});
  for (std::int64_t i = 0; i < kN; ++i) values[i] = static_cast<float>(i + 1);
  Tensor reversed = values;
  std::reverse(reversed.data.begin(), reversed.data.end());
  for (const int threads : {1, 2, 3}) {
    const Cpu cpu(threads);
    EXPECT_EQ(exact_sum(cpu.stream(), values.data).value(), 180000900001.0);  // n (n + 1) / 2
    const ExactSum squares = exact_sum_of_squares(cpu.stream(), values.data);
    // n (n + 1) (2n + 1) / 6 = 72000540001100000.5…: the squares themselves are exact, the sum is an integer below 2^57.
    EXPECT_EQ(squares.value(), static_cast<double>(600001LL * 600002LL / 2 * 1200003LL / 3));
    EXPECT_EQ(squares.num_addends(), kN);
    EXPECT_EQ(exact_sum_of_squares(cpu.stream(), reversed.data).export_words(), squares.export_words());
    EXPECT_EQ(exact_sum(cpu.stream(), {}).value(), 0.0);
  }
}

// Neighbours are paired level by level; an odd last one passes up.
float by_levels(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return level[0];
}

TEST(TreeSum, PairsNeighboursLevelByLevel) {
  // 10^8 swallows a 1: ((10^8 + 1) + (-10^8 + 1)) + 1 = 1, while from left to right it would be 2.
  const std::array<float, 5> values = {1e8F, 1.0F, -1e8F, 1.0F, 1.0F};
  std::array<const float*, 5> sources{};
  for (std::size_t k = 0; k < 5; ++k) sources[k] = &values[k];
  float sum = 0.0F;
  tree_sum(std::span<float>(&sum, 1), sources);
  EXPECT_EQ(sum, 1.0F);
}

TEST(TreeSum, HasOneOrderForAnyNumberOfSourcesAndAnyLength) {
  for (std::int64_t num_sources = 1; num_sources <= 17; ++num_sources) {
    for (const std::int64_t n : {0, 1, 7, 16, 17, 67}) {
      std::vector<Tensor> tensors;
      std::vector<const float*> sources;
      for (std::int64_t k = 0; k < num_sources; ++k)
        tensors.push_back(random_tensor({n}, static_cast<std::uint64_t>(100 + k)));
      for (const Tensor& tensor : tensors) sources.push_back(tensor.data.data());
      Tensor sum({n});
      tree_sum(std::span<float>(sum.data), sources);
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<float> leaves;
        for (const Tensor& tensor : tensors) leaves.push_back(tensor[i]);
        ASSERT_EQ(sum[i], by_levels(leaves)) << num_sources << " sources, element " << i;
      }
      // Into any of the sources.
      for (std::int64_t k = 0; k < num_sources; ++k) {
        std::vector<Tensor> copies = tensors;
        std::vector<const float*> pointers;
        for (const Tensor& tensor : copies) pointers.push_back(tensor.data.data());
        tree_sum(std::span<float>(copies[static_cast<std::size_t>(k)].data), pointers);
        ASSERT_TRUE(same_bits(copies[static_cast<std::size_t>(k)].data, sum.data));
      }
    }
  }
}

TEST(TreeSum, IntegersAddAndMayWrap) {
  std::vector<std::int64_t> a(3000);
  std::vector<std::int64_t> b(3000);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::int64_t>(i);
    b[i] = INT64_MAX;
  }
  const std::array<const std::int64_t*, 3> sources = {a.data(), b.data(), b.data()};
  tree_sum(std::span<std::int64_t>(a), sources);  // i + 2 (2^63 - 1) = i - 2 modulo 2^64
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], static_cast<std::int64_t>(i) - 2);
}

}  // namespace
}  // namespace tessera::ops
