#include "runtime/base/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kTrials = 40000;

// Distance in units of the last place of the nearest double of the wanted value.
double ulps(double got, long double want) {
  int exponent = 0;
  std::frexp(static_cast<double>(want), &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent, -1021) - 53);
  return static_cast<double>(std::abs(static_cast<long double>(got) - want) / unit);
}

template <typename Ours, typename Theirs>
double worst_uniform(Ours ours, Theirs theirs, double low, double high) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(low, high);
  double worst = 0;
  for (int i = 0; i < kTrials; ++i) {
    const double x = uniform(random);
    worst = std::max(worst, ulps(ours(x), theirs(static_cast<long double>(x))));
  }
  return worst;
}

// x = ±2^y, y uniform.
template <typename Ours, typename Theirs>
double worst_logarithmic(Ours ours, Theirs theirs, double low_exponent, double high_exponent, bool both_signs) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform(low_exponent, high_exponent);
  double worst = 0;
  for (int i = 0; i < kTrials; ++i) {
    const double sign = both_signs && i % 2 == 0 ? -1.0 : 1.0;
    const double x = sign * std::exp2(uniform(random));
    worst = std::max(worst, ulps(ours(x), theirs(static_cast<long double>(x))));
  }
  return worst;
}

const auto kExp = [](long double x) { return std::exp(x); };
const auto kLog = [](long double x) { return std::log(x); };
const auto kSin = [](long double x) { return std::sin(x); };
const auto kCos = [](long double x) { return std::cos(x); };
const auto kTanh = [](long double x) { return std::tanh(x); };
const auto kErf = [](long double x) { return std::erf(x); };

TEST(Math, ExpIsWithinAUlpOfTheTrueValue) {
  EXPECT_LT(worst_uniform(math::exp, kExp, -708, 709.7), 1.0);
  EXPECT_LT(worst_uniform(math::exp, kExp, -1, 1), 1.0);
  EXPECT_LT(worst_logarithmic(math::exp, kExp, -300, 0, true), 1.0);
}

TEST(Math, ExpHasItsEdges) {
  EXPECT_EQ(math::exp(0.0), 1.0);
  EXPECT_EQ(math::exp(709.79), kInfinity);
  EXPECT_TRUE(std::isfinite(math::exp(709.78)));
  EXPECT_EQ(math::exp(-746.0), 0.0);
  EXPECT_EQ(math::exp(kInfinity), kInfinity);
  EXPECT_EQ(math::exp(-kInfinity), 0.0);
  EXPECT_TRUE(std::isnan(math::exp(std::nan(""))));
}

TEST(Math, LogIsWithinAUlpOfTheTrueValue) {
  EXPECT_LT(worst_logarithmic(math::log, kLog, -1022, 1023, false), 1.0);
  EXPECT_LT(worst_uniform(math::log, kLog, 0.5, 2), 1.0);
  EXPECT_LT(worst_uniform(math::log, kLog, 0.999, 1.001), 1.0);
}

TEST(Math, LogHasItsEdges) {
  EXPECT_EQ(math::log(1.0), 0.0);
  EXPECT_EQ(math::log(0.0), -kInfinity);
  EXPECT_EQ(math::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(math::log(-1.0)));
  EXPECT_TRUE(std::isnan(math::log(-kInfinity)));
  EXPECT_TRUE(std::isnan(math::log(std::nan(""))));
  EXPECT_LT(ulps(math::log(5e-324), -744.44007192138126231L), 1.0);  // -1074 ln 2
}

TEST(Math, SinAndCosAreWithinAUlpUpToABillion) {
  EXPECT_LT(worst_uniform(math::sin, kSin, -10, 10), 1.0);
  EXPECT_LT(worst_uniform(math::cos, kCos, -10, 10), 1.0);
  EXPECT_LT(worst_logarithmic(math::sin, kSin, -300, 30, true), 1.0);
  EXPECT_LT(worst_logarithmic(math::cos, kCos, -300, 30, true), 1.0);
}

TEST(Math, SinAndCosKeepTheirDigitsBesideTheirZeros) {
  double worst = 0;
  for (int k = 1; k < 300000; k += 7) {
    const double x = k * 1.5707963267948966;
    worst = std::max({worst, ulps(math::sin(x), std::sin(static_cast<long double>(x))),
                      ulps(math::cos(x), std::cos(static_cast<long double>(x)))});
  }
  EXPECT_LT(worst, 1.5);
}

TEST(Math, SinAndCosRefuseWhatTheyCannotReduce) {
  EXPECT_TRUE(std::isnan(math::sin(0x1.1p30)));
  EXPECT_TRUE(std::isnan(math::cos(-0x1.1p30)));
  EXPECT_TRUE(std::isnan(math::sin(kInfinity)));
  EXPECT_EQ(math::sin(0.0), 0.0);
  EXPECT_TRUE(std::signbit(math::sin(-0.0)));
  EXPECT_EQ(math::cos(0.0), 1.0);
}

TEST(Math, TanhIsWithinThreeUlps) {
  EXPECT_LT(worst_uniform(math::tanh, kTanh, -23, 23), 3.0);
  EXPECT_LT(worst_logarithmic(math::tanh, kTanh, -60, 1, true), 3.0);
  EXPECT_EQ(math::tanh(1000.0), 1.0);
  EXPECT_EQ(math::tanh(-kInfinity), -1.0);
}

TEST(Math, ErfIsWithinThreeUlps) {
  EXPECT_LT(worst_uniform(math::erf, kErf, -6.5, 6.5), 3.0);
  EXPECT_LT(worst_logarithmic(math::erf, kErf, -60, 0.1, true), 3.0);
  EXPECT_EQ(math::erf(kInfinity), 1.0);
  EXPECT_EQ(math::erf(-7.0), -1.0);
  EXPECT_TRUE(std::isnan(math::erf(std::nan(""))));
}

TEST(Math, PowIsWithinAUlpAlsoWhereTheExponentIsLarge) {
  for (const double exponent : {0.5, -0.5, 1.0, 2.0, 3.7, -80.25, 123.456}) {
    const auto ours = [=](double x) { return math::pow(x, exponent); };
    const auto theirs = [=](long double x) { return std::pow(x, static_cast<long double>(exponent)); };
    EXPECT_LT(worst_uniform(ours, theirs, 0.01, 3), 1.0) << exponent;
  }
  const auto decay = [](double n) { return math::pow(0.999, n); };
  EXPECT_LT(worst_uniform(
                decay, [](long double n) { return std::pow(static_cast<long double>(0.999), n); }, 0, 700000),
            1.0);
  // The rotary frequencies.
  const auto frequency = [](double t) { return math::pow(10000.0, t); };
  EXPECT_LT(worst_uniform(
                frequency, [](long double t) { return std::pow(10000.0L, t); }, -1, 0),
            1.0);
}

TEST(Math, PowHasItsEdges) {
  EXPECT_EQ(math::pow(2.0, 10.0), 1024.0);
  EXPECT_EQ(math::pow(3.0, 0.0), 1.0);
  EXPECT_EQ(math::pow(0.0, 2.0), 0.0);
  EXPECT_EQ(math::pow(0.0, -1.0), kInfinity);
  EXPECT_EQ(math::pow(10.0, 400.0), kInfinity);
  EXPECT_EQ(math::pow(10.0, -400.0), 0.0);
  EXPECT_EQ(math::pow(1.0, 1e300), 1.0);
  EXPECT_EQ(math::pow(2.0, 1e300), kInfinity);
  EXPECT_TRUE(std::isnan(math::pow(-2.0, 2.0)));
}

TEST(Math, PowIntMultipliesExactlyWhereTheProductsFit) {
  EXPECT_EQ(math::pow_int(3.0, 0), 1.0);
  EXPECT_EQ(math::pow_int(3.0, 33), 5559060566555523.0);  // 3^33 < 2^53
  EXPECT_EQ(math::pow_int(-2.0, 3), -8.0);
  EXPECT_LT(ulps(math::pow_int(0.9, 10), std::pow(static_cast<long double>(0.9), 10.0L)), 4.0);
  EXPECT_EQ(math::pow_int(0.5, 1074), std::ldexp(1.0, -1074));
}

}  // namespace
}  // namespace tessera
