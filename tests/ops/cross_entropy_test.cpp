#include "runtime/ops/cross_entropy.h"

#include <limits>

#include "runtime/base/error.h"
#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

ConstTensorView target_view(const std::vector<std::int32_t>& targets) {
  return {targets.data(), {static_cast<std::int64_t>(targets.size())}, DType::kInt32};
}

double reference_loss(const Doubles& z, std::size_t target, double smoothing, double z_loss) {
  double max = z[0];
  for (const double value : z) max = std::max(max, value);
  double sum = 0.0;
  double mean = 0.0;
  for (const double value : z) {
    sum += std::exp(value - max);
    mean += value / static_cast<double>(z.size());
  }
  const double lse = max + std::log(sum);
  return lse - ((1.0 - smoothing) * z[target] + smoothing * mean) + z_loss * lse * lse;
}

TEST(CrossEntropy, LossAndGradientAgreeWithTheDefinitionAndFiniteDifferences) {
  const Cpu cpu;
  for (const auto& [smoothing, z_loss] : {std::pair{0.0F, 0.0F}, {0.1F, 0.0F}, {0.0F, 1e-2F}, {0.3F, 1e-3F}}) {
    for (const std::int64_t vocabulary : {1, 2, 7, 15, 16, 17, 67}) {
      const Tensor logits = random_tensor({3, vocabulary}, 1, 4.0F);
      const std::vector<std::int32_t> targets = {0, static_cast<std::int32_t>(vocabulary / 2),
                                                 static_cast<std::int32_t>(vocabulary - 1)};
      Tensor z = logits;
      Tensor losses({3});
      cross_entropy(cpu.stream(), {.logits = z.view(),
                                   .targets = target_view(targets),
                                   .losses = losses.view(),
                                   .options = {.label_smoothing = smoothing, .z_loss = z_loss},
                                   .gradient_scale = 0.25F});
      for (std::int64_t row = 0; row < 3; ++row) {
        const Doubles z64(logits.data.begin() + row * vocabulary, logits.data.begin() + (row + 1) * vocabulary);
        const auto target = static_cast<std::size_t>(targets[static_cast<std::size_t>(row)]);
        const auto loss = [&](const Doubles& at) { return reference_loss(at, target, smoothing, z_loss); };
        ASSERT_NEAR(losses[row], loss(z64), 2e-6 * (1.0 + loss(z64))) << vocabulary;
        const Doubles gradient = numeric_gradient(loss, z64);
        for (std::int64_t v = 0; v < vocabulary; ++v) {
          ASSERT_NEAR(z.at(row, v), 0.25 * gradient[static_cast<std::size_t>(v)], 1e-6) << vocabulary << " at " << v;
        }
      }
    }
  }
}

TEST(CrossEntropy, EqualLogitsCostTheLogarithmOfTheVocabulary) {
  const Cpu cpu;
  for (const std::int64_t vocabulary : {67, 50304}) {
    Tensor z({2, vocabulary}, -3.5F);
    const std::vector<std::int32_t> targets = {0, 66};
    Tensor losses({2});
    cross_entropy(cpu.stream(), {.logits = z.view(), .targets = target_view(targets), .losses = losses.view()});
    const double expected = vocabulary == 67 ? 4.2046926193909660 : 10.825839885188945;  // ln 67, ln 50304
    EXPECT_NEAR(losses[0], expected, 1e-6);
    EXPECT_NEAR(losses[1], expected, 1e-6);
    EXPECT_NEAR(z.at(0, 0), 1.0 / static_cast<double>(vocabulary) - 1.0, 1e-6);
    EXPECT_NEAR(z.at(0, 1), 1.0 / static_cast<double>(vocabulary), 1e-9);
  }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Cpu cpu;
  Tensor z({3, 20}, 0.0F);
  z.at(0, 3) = 1e4F;
  z.at(1, 3) = 1e4F;
  for (std::int64_t v = 0; v < 20; ++v) z.at(2, v) = -1e38F;
  const std::vector<std::int32_t> targets = {3, 4, 5};
  Tensor losses({3});
  cross_entropy(cpu.stream(), {.logits = z.view(), .targets = target_view(targets), .losses = losses.view()});
  EXPECT_EQ(losses[0], 0.0F);
  EXPECT_EQ(losses[1], 1e4F);
  EXPECT_NEAR(losses[2], std::log(20.0), 1e-6);
  EXPECT_EQ(z.at(0, 3), 0.0F);
  EXPECT_EQ(z.at(1, 3), 1.0F);
  EXPECT_EQ(z.at(1, 4), -1.0F);
  EXPECT_EQ(z.at(1, 5), 0.0F);
}

TEST(CrossEntropy, IgnoredRowsCostNothingWhateverTheyHold) {
  const Cpu cpu;
  Tensor z({4, 19}, std::numeric_limits<float>::quiet_NaN());
  const std::vector<std::int32_t> targets(4, -100);
  Tensor losses({4}, 9.0F);
  cross_entropy(cpu.stream(), {.logits = z.view(), .targets = target_view(targets), .losses = losses.view()});
  EXPECT_EQ(losses.data, std::vector<float>(4, 0.0F));
  EXPECT_EQ(z.data, std::vector<float>(76, 0.0F));

  // Another index may be the one to ignore, one inside the vocabulary too.
  Tensor y({2, 19}, 1.0F);
  const std::vector<std::int32_t> mixed = {7, 8};
  Tensor two({2});
  cross_entropy(
      cpu.stream(),
      {.logits = y.view(), .targets = target_view(mixed), .losses = two.view(), .options = {.ignore_index = 7}});
  EXPECT_EQ(two[0], 0.0F);
  EXPECT_NEAR(two[1], 2.9444389791664403, 1e-6);  // ln 19
}

TEST(CrossEntropy, WhatIsNotANumberReachesTheLoss) {
  const Cpu cpu;
  for (const std::int64_t bad : {0, 5, 16, 18}) {
    Tensor z({1, 19}, 1.0F);
    z[bad] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::int32_t> targets = {3};
    Tensor losses({1});
    cross_entropy(
        cpu.stream(),
        {.logits = z.view(), .targets = target_view(targets), .losses = losses.view(), .with_gradient = false});
    EXPECT_TRUE(std::isnan(losses[0])) << bad;
  }
}

TEST(CrossEntropy, WithoutGradientLogitsStayAndLossesHaveTheSameBits) {
  const Cpu cpu;
  const Tensor logits = random_tensor({5, 77}, 2, 3.0F);
  const std::vector<std::int32_t> targets = {0, 1, 2, 3, 76};
  Tensor z = logits;
  Tensor with({5});
  Tensor without({5});
  CrossEntropy args{
      .logits = z.view(), .targets = target_view(targets), .losses = without.view(), .with_gradient = false};
  cross_entropy(cpu.stream(), args);
  EXPECT_TRUE(same_bits(z.data, logits.data));
  args.losses = with.view();
  args.with_gradient = true;
  cross_entropy(cpu.stream(), args);
  EXPECT_TRUE(same_bits(with.data, without.data));
}

TEST(CrossEntropy, TargetsOutsideTheVocabularyAreRefused) {
  const Cpu cpu;
  Tensor z({1, 5});
  Tensor losses({1});
  for (const std::int32_t target : {5, -1}) {
    const std::vector<std::int32_t> targets = {target};
    EXPECT_THROW(
        cross_entropy(cpu.stream(), {.logits = z.view(), .targets = target_view(targets), .losses = losses.view()}),
        InternalError);
  }
}

// What head_loss must equal: the product, its cross-entropy, and the two products back, in double.
TEST(HeadLoss, ChunksGiveTheLossAndGradientsOfTheWhole) {
  const Cpu cpu;
  for (const std::int64_t rows : {1, 17, 600}) {  // 600: one chunk of rows and a part
    constexpr std::int64_t kFeatures = 19;
    constexpr std::int64_t kVocabulary = 67;
    const Tensor x = random_tensor({rows, kFeatures}, 3);
    const Tensor w = random_tensor({kVocabulary, kFeatures}, 4);
    std::vector<std::int32_t> targets(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = i % 5 == 4 ? -100 : static_cast<std::int32_t>(i * 31 % 67);

    Doubles losses64(static_cast<std::size_t>(rows));
    Doubles dx64(static_cast<std::size_t>(rows * kFeatures));
    Doubles dw64(static_cast<std::size_t>(kVocabulary * kFeatures));
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::int32_t target = targets[static_cast<std::size_t>(t)];
      if (target == -100) continue;
      Doubles z(kVocabulary);
      for (std::int64_t v = 0; v < kVocabulary; ++v) {
        for (std::int64_t h = 0; h < kFeatures; ++h)
          z[static_cast<std::size_t>(v)] += static_cast<double>(x.at(t, h)) * w.at(v, h);
      }
      losses64[static_cast<std::size_t>(t)] = reference_loss(z, static_cast<std::size_t>(target), 0.1, 1e-3);
      const Doubles dz = numeric_gradient(
          [&](const Doubles& at) { return 0.5 * reference_loss(at, static_cast<std::size_t>(target), 0.1, 1e-3); }, z);
      for (std::int64_t v = 0; v < kVocabulary; ++v) {
        for (std::int64_t h = 0; h < kFeatures; ++h) {
          dx64[static_cast<std::size_t>(t * kFeatures + h)] += dz[static_cast<std::size_t>(v)] * w.at(v, h);
          dw64[static_cast<std::size_t>(v * kFeatures + h)] += dz[static_cast<std::size_t>(v)] * x.at(t, h);
        }
      }
    }
    for (const bool accumulate : {false, true}) {
      Tensor losses({rows});
      Tensor dx({rows, kFeatures}, 3.0F);
      Tensor dw({kVocabulary, kFeatures}, 0.5F);
      head_loss(cpu.stream(), {.x = x.view(),
                               .w = w.view(),
                               .targets = target_view(targets),
                               .losses = losses.view(),
                               .dx = dx.view(),
                               .dw = dw.view(),
                               .options = {.label_smoothing = 0.1F, .z_loss = 1e-3F},
                               .gradient_scale = 0.5F,
                               .accumulate_weight = accumulate});
      expect_close(losses.data, losses64, 3e-6, "losses");
      expect_close(dx.data, dx64, 3e-6, "dx");
      Doubles dw_expected = dw64;
      for (double& d : dw_expected) d += accumulate ? 0.5 : 0.0;
      expect_close(dw.data, dw_expected, 1e-5, "dw");

      Tensor evaluated({rows});
      head_loss(cpu.stream(), {.x = x.view(),
                               .w = w.view(),
                               .targets = target_view(targets),
                               .losses = evaluated.view(),
                               .options = {.label_smoothing = 0.1F, .z_loss = 1e-3F},
                               .with_gradient = false});
      EXPECT_TRUE(same_bits(evaluated.data, losses.data));
    }
  }
}

TEST(HeadLoss, BitsDoNotDependOnThreads) {
  const Tensor x = random_tensor({270, 40}, 5);
  const Tensor w = random_tensor({500, 40}, 6);
  std::vector<std::int32_t> targets(270);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>(i);
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3, 4}) {
    const Cpu cpu(threads);
    std::vector<Tensor> r = {Tensor({270}), Tensor({270, 40}), Tensor({500, 40})};
    head_loss(cpu.stream(), {.x = x.view(),
                             .w = w.view(),
                             .targets = target_view(targets),
                             .losses = r[0].view(),
                             .dx = r[1].view(),
                             .dw = r[2].view()});
    if (first.empty()) first = r;
    for (std::size_t i = 0; i < r.size(); ++i) EXPECT_TRUE(same_bits(r[i].data, first[i].data)) << i;
  }
}

TEST(HeadLoss, LogitsExistForOneChunkOfRowsAtATime) {
  EXPECT_EQ(head_loss_workspace_bytes(1024, 50304), 512 * 50304 * 4);
  EXPECT_EQ(head_loss_workspace_bytes(10, 64), 10 * 64 * 4);
}

}  // namespace
}  // namespace tessera::ops
