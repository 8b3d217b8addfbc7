#include "runtime/ops/activation.h"

#include <limits>

#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

constexpr ActivationKind kKinds[] = {ActivationKind::kGelu, ActivationKind::kGeluTanh, ActivationKind::kRelu,
                                     ActivationKind::kSilu, ActivationKind::kSwiGlu,   ActivationKind::kGeGlu};
constexpr std::int64_t kActivationSizes[] = {1, 7, 15, 16, 17, 67, 16384 + 5};

double reference(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kGelu:
    case ActivationKind::kGeGlu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kRelu: return x > 0.0 ? x : 0.0;
    case ActivationKind::kSilu:
    case ActivationKind::kSwiGlu: return x / (1.0 + std::exp(-x));
  }
  return 0.0;
}

double slope(ActivationKind kind, double x) {
  if (kind == ActivationKind::kRelu) return x > 0.0 ? 1.0 : 0.0;
  constexpr double kStep = 1e-5;
  return (reference(kind, x + kStep) - reference(kind, x - kStep)) / (2.0 * kStep);
}

TEST(Activation, ForwardAgreesWithTheDefinition) {
  const Cpu cpu;
  for (const ActivationKind kind : kKinds) {
    for (const std::int64_t n : kActivationSizes) {
      const Tensor x = random_tensor({n}, 1, 6.0F);
      const Tensor up = random_tensor({n}, 2);
      Tensor y({n});
      activation_forward(cpu.stream(), {.kind = kind, .x = x.view(), .up = up.view(), .y = y.view()});
      for (std::int64_t i = 0; i < n; ++i) {
        const double expected = reference(kind, x[i]) * (is_gated(kind) ? up[i] : 1.0);
        ASSERT_NEAR(y[i], expected, 2e-6 * std::abs(expected) + 1e-9) << static_cast<int>(kind) << " of " << x[i];
      }
    }
  }
}

TEST(Activation, TheTailKeepsItsRelativeAccuracy) {
  const Cpu cpu;
  for (const ActivationKind kind : {ActivationKind::kGelu, ActivationKind::kSilu}) {
    Tensor x({64});
    for (std::int64_t i = 0; i < 64; ++i) x[i] = -0.2F * static_cast<float>(i);  // down to -12.6
    Tensor y({64});
    activation_forward(cpu.stream(), {.kind = kind, .x = x.view(), .y = y.view()});
    for (std::int64_t i = 0; i < 64; ++i) {
      const double expected = reference(kind, x[i]);
      ASSERT_NEAR(y[i], expected, 1e-5 * std::abs(expected)) << x[i];
    }
  }
}

TEST(Activation, BackwardAgreesWithFiniteDifferences) {
  const Cpu cpu;
  for (const ActivationKind kind : kKinds) {
    for (const std::int64_t n : kActivationSizes) {
      const Tensor x = random_tensor({n}, 3, 6.0F);
      const Tensor up = random_tensor({n}, 4);
      const Tensor dy = random_tensor({n}, 5);
      Tensor dx({n}, 7.0F);
      Tensor dup({n}, 7.0F);
      activation_backward(
          cpu.stream(),
          {.kind = kind, .dy = dy.view(), .x = x.view(), .up = up.view(), .dx = dx.view(), .dup = dup.view()});
      for (std::int64_t i = 0; i < n; ++i) {
        const double gate = is_gated(kind) ? up[i] : 1.0;
        ASSERT_NEAR(dx[i], dy[i] * gate * slope(kind, x[i]), 2e-6) << static_cast<int>(kind) << " at " << x[i];
        if (is_gated(kind)) {
          ASSERT_NEAR(dup[i], dy[i] * reference(kind, x[i]), 1e-5);
        }
      }
    }
  }
}

TEST(Activation, LargeInputsSaturateAndNothingIsLost) {
  const Cpu cpu;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const ActivationKind kind :
       {ActivationKind::kGelu, ActivationKind::kGeluTanh, ActivationKind::kRelu, ActivationKind::kSilu}) {
    Tensor x({5});
    x.data = {1e30F, -1e30F, 1000.0F, -1000.0F, infinity};
    Tensor y({5});
    activation_forward(cpu.stream(), {.kind = kind, .x = x.view(), .y = y.view()});
    EXPECT_EQ(y[0], 1e30F);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_EQ(y[2], 1000.0F);
    EXPECT_EQ(y[3], 0.0F);
    EXPECT_EQ(y[4], infinity);
    const Tensor dy({5}, 1.0F);
    Tensor dx({5});
    activation_backward(cpu.stream(), {.kind = kind, .dy = dy.view(), .x = x.view(), .dx = dx.view()});
    EXPECT_EQ(dx.data, (std::vector<float>{1.0F, 0.0F, 1.0F, 0.0F, 1.0F})) << static_cast<int>(kind);
  }
}

TEST(Activation, WhatIsNotANumberStaysSo) {
  const Cpu cpu;
  for (const ActivationKind kind : kKinds) {
    const Tensor x({3}, std::numeric_limits<float>::quiet_NaN());
    const Tensor up({3}, 1.0F);
    Tensor y({3});
    activation_forward(cpu.stream(), {.kind = kind, .x = x.view(), .up = up.view(), .y = y.view()});
    for (const float value : y.data) EXPECT_TRUE(std::isnan(value)) << static_cast<int>(kind);
  }
}

TEST(Activation, ResultsMayOverwriteOperands) {
  const Cpu cpu;
  for (const ActivationKind kind : kKinds) {
    const Tensor x = random_tensor({37}, 6, 3.0F);
    const Tensor up = random_tensor({37}, 7);
    const Tensor dy = random_tensor({37}, 8);
    Tensor y({37});
    Tensor dx({37});
    Tensor dup({37});
    activation_forward(cpu.stream(), {.kind = kind, .x = x.view(), .up = up.view(), .y = y.view()});
    activation_backward(
        cpu.stream(),
        {.kind = kind, .dy = dy.view(), .x = x.view(), .up = up.view(), .dx = dx.view(), .dup = dup.view()});

    Tensor in_place = x;
    activation_forward(cpu.stream(), {.kind = kind, .x = in_place.view(), .up = up.view(), .y = in_place.view()});
    EXPECT_TRUE(same_bits(in_place.data, y.data));

    in_place = dy;
    Tensor up_in_place = up;
    activation_backward(cpu.stream(), {.kind = kind,
                                       .dy = in_place.view(),
                                       .x = x.view(),
                                       .up = up_in_place.view(),
                                       .dx = in_place.view(),
                                       .dup = up_in_place.view()});
    EXPECT_TRUE(same_bits(in_place.data, dx.data));
    if (is_gated(kind)) {
      EXPECT_TRUE(same_bits(up_in_place.data, dup.data));
    }

    in_place = x;
    activation_backward(cpu.stream(), {.kind = kind,
                                       .dy = dy.view(),
                                       .x = in_place.view(),
                                       .up = up.view(),
                                       .dx = in_place.view(),
                                       .dup = dup.view()});
    EXPECT_TRUE(same_bits(in_place.data, dx.data));
  }
}

TEST(Activation, AnElementsBitsDoNotDependOnItsPosition) {
  const Cpu cpu;
  for (const ActivationKind kind : kKinds) {
    const Tensor x({67}, 0.73F);
    const Tensor up({67}, 1.37F);
    Tensor y({67});
    activation_forward(cpu.stream(), {.kind = kind, .x = x.view(), .up = up.view(), .y = y.view()});
    EXPECT_EQ(y.data, std::vector<float>(67, y[0]));
  }
}

TEST(Add, AddsElementwiseAndInPlace) {
  const Cpu cpu;
  for (const std::int64_t n : kActivationSizes) {
    const Tensor a = random_tensor({n}, 9);
    const Tensor b = random_tensor({n}, 10);
    Tensor y({n});
    add(cpu.stream(), {.a = a.view(), .b = b.view(), .y = y.view()});
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] + b[i]);
    Tensor in_place = b;
    add(cpu.stream(), {.a = a.view(), .b = in_place.view(), .y = in_place.view()});
    EXPECT_TRUE(same_bits(in_place.data, y.data));
  }
}

}  // namespace
}  // namespace tessera::ops
