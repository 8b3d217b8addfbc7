#include "runtime/ops/norm.h"

#include "runtime/base/error.h"
#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

constexpr float kEps = 1e-5F;

struct NormCase {
  NormKind kind;
  std::int64_t rows, features;
};

std::vector<NormCase> all_cases(std::initializer_list<std::int64_t> rows) {
  std::vector<NormCase> cases;
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    for (const std::int64_t r : rows) {
      for (const std::int64_t features : {1, 7, 15, 16, 17, 67, 128}) cases.push_back({kind, r, features});
    }
  }
  return cases;
}

// y of every row, from the definition.
Doubles reference(NormKind kind, std::int64_t features, const Doubles& x, const Doubles& gain, const Doubles& bias) {
  Doubles y(x.size());
  const auto width = static_cast<std::size_t>(features);
  for (std::size_t row = 0; row * width < x.size(); ++row) {
    const double* r = x.data() + row * width;
    double mean = 0.0;
    if (kind == NormKind::kLayerNorm) {
      for (std::size_t i = 0; i < width; ++i) mean += r[i] / static_cast<double>(width);
    }
    double variance = 0.0;
    for (std::size_t i = 0; i < width; ++i) variance += (r[i] - mean) * (r[i] - mean) / static_cast<double>(width);
    const double rstd = 1.0 / std::sqrt(variance + static_cast<double>(kEps));
    for (std::size_t i = 0; i < width; ++i)
      y[row * width + i] = (r[i] - mean) * rstd * gain[i] + (bias.empty() ? 0.0 : bias[i]);
  }
  return y;
}

TEST(Norm, ForwardAddsTheResidualAndNormalisesRows) {
  const Cpu cpu;
  for (const auto& [kind, rows, features] : all_cases({1, 3, 70})) {
    const Tensor residual = random_tensor({rows, features}, 1, 2.0F);
    const Tensor delta = random_tensor({rows, features}, 2);
    const Tensor gain = random_tensor({features}, 3);
    const Tensor bias = random_tensor({features}, 4);
    Tensor sum({rows, features});
    Tensor y({rows, features});
    Tensor mean({rows});
    Tensor rstd({rows});
    norm_forward(cpu.stream(), {.kind = kind,
                                .residual = residual.view(),
                                .delta = delta.view(),
                                .gain = gain.view(),
                                .bias = bias.view(),
                                .residual_out = sum.view(),
                                .y = y.view(),
                                .mean = mean.view(),
                                .rstd = rstd.view(),
                                .eps = kEps});
    for (std::int64_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], residual[i] + delta[i]);
    expect_close(y.data, reference(kind, features, to_doubles(sum), to_doubles(gain), to_doubles(bias)), 1e-5, "y");

    Tensor again({rows, features});
    norm_recompute(cpu.stream(), {.kind = kind,
                                  .residual = sum.view(),
                                  .gain = gain.view(),
                                  .bias = bias.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .y = again.view()});
    EXPECT_TRUE(same_bits(again.data, y.data));
  }
}

TEST(Norm, WithoutDeltaTheResidualIsCopiedAndMayStayWhereItIs) {
  const Cpu cpu;
  const Tensor residual = random_tensor({5, 19}, 5);
  const Tensor gain = random_tensor({19}, 6);
  Tensor copy({5, 19});
  Tensor y({5, 19});
  Tensor mean({5});
  Tensor rstd({5});
  NormForward args{
      .residual = residual.view(), .gain = gain.view(), .y = y.view(), .mean = mean.view(), .rstd = rstd.view()};
  norm_forward(cpu.stream(), args);
  const Tensor without_copy = y;
  args.residual_out = copy.view();
  norm_forward(cpu.stream(), args);
  EXPECT_TRUE(same_bits(copy.data, residual.data));
  EXPECT_TRUE(same_bits(y.data, without_copy.data));
  expect_close(y.data, reference(NormKind::kLayerNorm, 19, to_doubles(residual), to_doubles(gain), {}), 1e-5, "y");
}

TEST(Norm, TheSumMayOverwriteTheResidual) {
  const Cpu cpu;
  const Tensor residual = random_tensor({9, 35}, 7);
  const Tensor delta = random_tensor({9, 35}, 8);
  const Tensor gain({35}, 1.0F);
  Tensor separate({9, 35});
  Tensor in_place = residual;
  Tensor y1({9, 35});
  Tensor y2({9, 35});
  Tensor rstd({9});
  NormForward args{.kind = NormKind::kRmsNorm,
                   .residual = residual.view(),
                   .delta = delta.view(),
                   .gain = gain.view(),
                   .residual_out = separate.view(),
                   .y = y1.view(),
                   .rstd = rstd.view()};
  norm_forward(cpu.stream(), args);
  args.residual = in_place.view();
  args.residual_out = in_place.view();
  args.y = y2.view();
  norm_forward(cpu.stream(), args);
  EXPECT_TRUE(same_bits(in_place.data, separate.data));
  EXPECT_TRUE(same_bits(y1.data, y2.data));
}

TEST(Norm, ConstantRowsBecomeTheBias) {
  const Cpu cpu;
  const Tensor residual({2, 33}, 3.0F);
  const Tensor gain({33}, 2.0F);
  const Tensor bias({33}, 0.25F);
  Tensor y({2, 33});
  Tensor mean({2});
  Tensor rstd({2});
  norm_forward(cpu.stream(), {.residual = residual.view(),
                              .gain = gain.view(),
                              .bias = bias.view(),
                              .y = y.view(),
                              .mean = mean.view(),
                              .rstd = rstd.view(),
                              .eps = 1e-2F});
  EXPECT_EQ(y.data, std::vector<float>(66, 0.25F));
  EXPECT_EQ(mean.data, std::vector<float>(2, 3.0F));
  EXPECT_NEAR(rstd[0], 10.0, 1e-5);  // 1 / sqrt(0 + 0.01)
}

// The gradients of sum(y * dy) by central differences; the operator adds them to what was there, or replaces it.
TEST(Norm, BackwardAgreesWithFiniteDifferencesAndAccumulates) {
  const Cpu cpu;
  for (const auto& [kind, rows, features] : all_cases({1, 3})) {
    if (kind == NormKind::kRmsNorm && features == 1)
      continue;  // its slope, eps / |x|^3, is below what differences resolve
    const Tensor x = random_tensor({rows, features}, 9, 2.0F);
    const Tensor gain = random_tensor({features}, 10);
    const Tensor bias = random_tensor({features}, 11);
    const Tensor dy = random_tensor({rows, features}, 12);
    Tensor y({rows, features});
    Tensor mean({rows});
    Tensor rstd({rows});
    norm_forward(cpu.stream(), {.kind = kind,
                                .residual = x.view(),
                                .gain = gain.view(),
                                .bias = bias.view(),
                                .y = y.view(),
                                .mean = mean.view(),
                                .rstd = rstd.view(),
                                .eps = kEps});
    const Doubles x64 = to_doubles(x);
    const Doubles gain64 = to_doubles(gain);
    const Doubles bias64 = to_doubles(bias);
    const auto loss = [&](const Doubles& a, const Doubles& g, const Doubles& b) {
      return weighted_sum(reference(kind, features, a, g, b), dy);
    };
    Doubles dx = numeric_gradient([&](const Doubles& a) { return loss(a, gain64, bias64); }, x64);
    Doubles dgain = numeric_gradient([&](const Doubles& g) { return loss(x64, g, bias64); }, gain64);
    Doubles dbias = numeric_gradient([&](const Doubles& b) { return loss(x64, gain64, b); }, bias64);
    for (const bool accumulate : {false, true}) {
      Tensor got_x({rows, features}, 0.5F);
      Tensor got_gain({features}, 0.75F);
      Tensor got_bias({features}, 1.25F);
      norm_backward(cpu.stream(), {.kind = kind,
                                   .dy = dy.view(),
                                   .residual = x.view(),
                                   .gain = gain.view(),
                                   .mean = mean.view(),
                                   .rstd = rstd.view(),
                                   .dx = got_x.view(),
                                   .dgain = got_gain.view(),
                                   .dbias = got_bias.view(),
                                   .accumulate_input = accumulate,
                                   .accumulate_parameters = accumulate});
      if (accumulate) {
        for (double& d : dx) d += 0.5;
        for (double& d : dgain) d += 0.75;
        for (double& d : dbias) d += 1.25;
      }
      expect_close(got_x.data, dx, 3e-5, "dx");
      expect_close(got_gain.data, dgain, 3e-5, "dgain");
      expect_close(got_bias.data, dbias, 3e-5, "dbias");
    }
  }
}

TEST(Norm, ParameterGradientsOfManyRowsAreSumsOverAllOfThem) {
  const Cpu cpu;
  constexpr std::int64_t kRows = 131;  // four whole chunks of rows and a part
  const Tensor x = random_tensor({kRows, 21}, 13);
  const Tensor gain({21}, 1.0F);
  const Tensor dy({kRows, 21}, 1.0F);
  Tensor y({kRows, 21});
  Tensor mean({kRows});
  Tensor rstd({kRows});
  norm_forward(cpu.stream(),
               {.residual = x.view(), .gain = gain.view(), .y = y.view(), .mean = mean.view(), .rstd = rstd.view()});
  Tensor dx({kRows, 21});
  Tensor dgain({21});
  Tensor dbias({21}, 1.0F);
  norm_backward(cpu.stream(), {.dy = dy.view(),
                               .residual = x.view(),
                               .gain = gain.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view(),
                               .dx = dx.view(),
                               .dgain = dgain.view(),
                               .dbias = dbias.view(),
                               .accumulate_parameters = true});
  EXPECT_EQ(dbias.data, std::vector<float>(21, 132.0F));
  Doubles sums(21, 0.0);  // with a gain of 1 and no bias, y is the normalised row
  for (std::int64_t i = 0; i < y.size(); ++i) sums[static_cast<std::size_t>(i % 21)] += y[i];
  expect_close(dgain.data, sums, 1e-5, "dgain");
}

TEST(Norm, BitsDoNotDependOnThreadsOrOnOtherRows) {
  constexpr std::int64_t kRows = 97;
  const Tensor x = random_tensor({kRows, 83}, 14);
  const Tensor gain = random_tensor({83}, 15);
  const Tensor dy = random_tensor({kRows, 83}, 16);
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3, 4}) {
    const Cpu cpu(threads);
    std::vector<Tensor> r = {Tensor({kRows, 83}), Tensor({kRows}), Tensor({kRows}),
                             Tensor({kRows, 83}), Tensor({83}),    Tensor({83})};
    norm_forward(
        cpu.stream(),
        {.residual = x.view(), .gain = gain.view(), .y = r[0].view(), .mean = r[1].view(), .rstd = r[2].view()});
    norm_backward(cpu.stream(), {.dy = dy.view(),
                                 .residual = x.view(),
                                 .gain = gain.view(),
                                 .mean = r[1].view(),
                                 .rstd = r[2].view(),
                                 .dx = r[3].view(),
                                 .dgain = r[4].view(),
                                 .dbias = r[5].view()});
    if (first.empty()) first = r;
    for (std::size_t i = 0; i < r.size(); ++i) EXPECT_TRUE(same_bits(r[i].data, first[i].data)) << i;
  }
  const Cpu cpu;
  Tensor alone({1, 83});
  Tensor mean({1});
  Tensor rstd({1});
  norm_forward(cpu.stream(), {.residual = {x.data.data() + 50 * 83, {1, 83}},
                              .gain = gain.view(),
                              .y = alone.view(),
                              .mean = mean.view(),
                              .rstd = rstd.view()});
  EXPECT_EQ(0, std::memcmp(alone.data.data(), first[0].data.data() + 50 * 83, 83 * sizeof(float)));
}

TEST(Norm, ASumWithoutAPlaceIsRefused) {
  const Cpu cpu;
  const Tensor x({2, 4});
  const Tensor gain({4});
  Tensor y({2, 4});
  Tensor mean({2});
  EXPECT_THROW(norm_forward(cpu.stream(), {.residual = x.view(),
                                           .delta = x.view(),
                                           .gain = gain.view(),
                                           .y = y.view(),
                                           .mean = mean.view(),
                                           .rstd = mean.view()}),
               InternalError);
}

}  // namespace
}  // namespace tessera::ops
