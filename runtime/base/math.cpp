#include "runtime/base/math.h"

#include <array>
#include <bit>
#include <cstddef>
#include <limits>

namespace tessera::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2 and pi/2 in parts short enough that the product with the whole number of a reduction is exact.
constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kHalfPi1 = 0x1.921fb4p+0;  // 23 bits
constexpr double kHalfPi2 = 0x1.4442d0p-24;
constexpr double kHalfPi3 = 0x1.846988p-48;
constexpr double kHalfPi4 = 0x1.8cc51701b839ap-72;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kTwoOverSqrtPi = 0x1.20dd750429b6dp+0;

// An unevaluated sum, high + low with |low| <= ulp(high)/2.
struct Pair {
  double high = 0;
  double low = 0;
};

// Knuth's and Dekker's error-free transformations.
Pair two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

Pair halves(double a) {
  constexpr double kSplit = 0x1p27 + 1.0;
  const double scaled = kSplit * a;
  const double high = scaled - (scaled - a);
  return {high, a - high};
}

Pair two_product(double a, double b) {
  const double product = a * b;
  const Pair x = halves(a);
  const Pair y = halves(b);
  return {product, ((x.high * y.high - product) + x.high * y.low + x.low * y.high) + x.low * y.low};
}

Pair multiply(Pair a, Pair b) {
  const Pair product = two_product(a.high, b.high);
  return two_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}

// Horner's scheme, the constant term first.
template <std::size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double sum = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// Nearest whole number for |x| < 2^51: the constant's unit in the last place is 1.
double nearest(double x) {
  constexpr double kRounder = 0x1.8p52;
  return (x + kRounder) - kRounder;
}

double power_of_two(int exponent) {  // -1022 <= exponent <= 1023
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// y * 2^exponent in two exact steps, for results from the denormal to the largest.
double scale(double y, int exponent) {
  const int half = exponent >> 1;
  return y * power_of_two(half) * power_of_two(exponent - half);
}

// A reduced argument: value = whole * ln 2 + rest + error.
struct Reduced {
  int whole = 0;
  double rest = 0;
  double error = 0;
};

Reduced reduce_by_ln2(double high, double low) {
  const double whole = nearest(high * kLog2E);
  const double exact = high - whole * kLn2High;
  const double small = whole * kLn2Low - low;
  const double rest = exact - small;
  return {static_cast<int>(whole), rest, (exact - rest) - small};
}

// e^r - 1 - r for |r| <= ln(2)/2, by Taylor: the next term is below 4e-18.
double exp_beyond_linear(double r) {
  constexpr std::array<double, 12> kTerms = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                                             1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                             1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  return r * r * polynomial(kTerms, r);
}

// e^(high + low), |low| much smaller than 1.
double exp_of_sum(double high, double low) {
  if (high > 709.7827128933841) return kInfinity;
  if (high < -745.14) return 0.0;
  const Reduced a = reduce_by_ln2(high, low);
  return scale(1.0 + (a.rest + (a.error + exp_beyond_linear(a.rest))), a.whole);
}

// e^x - 1 for 0 <= x <= 50, with the relative accuracy that 1 + it would lose.
double exp_minus_one(double x) {
  const Reduced a = reduce_by_ln2(x, 0.0);
  const double fraction = a.rest + (a.error + exp_beyond_linear(a.rest));
  if (a.whole == 0) return fraction;
  const double power = power_of_two(a.whole);
  return power * fraction + (power - 1.0);
}

// x = 2^exponent * (1 + fraction), sqrt(1/2) <= 1 + fraction < sqrt(2); x positive and finite, a denormal included.
struct Logarithmic {
  int exponent = 0;
  double fraction = 0;
};

Logarithmic decompose(double x) {
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52);
  if (exponent == 0) {  // in integers, so that it does not depend on how denormals are treated
    const int shift = std::countl_zero(bits) - 11;
    bits <<= shift;
    exponent = 1 - shift;
  }
  double mantissa = std::bit_cast<double>((bits & kMantissa) | (std::uint64_t{1023} << 52));
  exponent -= 1023;
  if (mantissa >= 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  return {exponent, mantissa - 1.0};
}

// log(1 + f) = 2 atanh(s), s = f / (2 + f): 2 s (1 + s^2/3 + s^4/5 + ...), |s| <= 0.1716. These are the terms 2/5, 2/7,
// ...
constexpr std::array<double, 10> kAtanhTerms = {2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                                                2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};

// log(x) in about 64 correct bits, for pow.
Pair log_pair(double x) {
  const auto [exponent, f] = decompose(x);
  const Pair divisor = two_sum(2.0, f);
  Pair s;
  s.high = f / divisor.high;
  const Pair back = two_product(s.high, divisor.high);
  s.low = (((f - back.high) - back.low) - s.high * divisor.low) / divisor.high;
  const Pair square = multiply(s, s);
  Pair factor = two_sum(2.0 / 3, square.high * polynomial(kAtanhTerms, square.high));
  factor.low += 0x1p-54 / 1.5;  // 2/3 itself is rounded down by 2/3 * 2^-54
  const Pair cubic = multiply(s, multiply(square, factor));
  const double whole = exponent;
  const Pair main = two_sum(whole * kLn2High, 2.0 * s.high);
  const Pair rest = two_sum(main.low + (2.0 * s.low + whole * kLn2Low + cubic.low), cubic.high);
  const Pair sum = two_sum(main.high, rest.high);
  return {sum.high, sum.low + rest.low};
}

// x - whole * pi/2 for |x| <= 2^30: the first two products and differences are exact, the last two are carried along.
struct Angle {
  int quadrant = 0;
  double rest = 0;
  double error = 0;
};

Angle reduce_by_half_pi(double x) {
  const double whole = nearest(x * kTwoOverPi);
  const double exact = (x - whole * kHalfPi1) - whole * kHalfPi2;
  const Pair third = two_sum(exact, -(whole * kHalfPi3));
  const Pair sum = two_sum(third.high, third.low - whole * kHalfPi4);
  return {static_cast<int>(static_cast<std::int64_t>(whole) & 3), sum.high, sum.low};
}

// sin and cos of rest + error, |rest| <= pi/4, by Taylor: the next terms are below 1e-19 and 4e-21.
double sin_near_zero(double rest, double error) {
  constexpr std::array<double, 8> kTerms = {-1.0 / 6,
                                            1.0 / 120,
                                            -1.0 / 5040,
                                            1.0 / 362880,
                                            -1.0 / 39916800.0,
                                            1.0 / 6227020800.0,
                                            -1.0 / 1307674368000.0,
                                            1.0 / 355687428096000.0};
  const double square = rest * rest;
  return rest + (rest * square * polynomial(kTerms, square) + error * (1.0 - 0.5 * square));
}

double cos_near_zero(double rest, double error) {
  constexpr std::array<double, 8> kTerms = {1.0 / 24,
                                            -1.0 / 720,
                                            1.0 / 40320,
                                            -1.0 / 3628800,
                                            1.0 / 479001600.,
                                            -1.0 / 87178291200.0,
                                            1.0 / 20922789888000.0,
                                            -1.0 / 6402373705728000.0};
  const double square = rest * rest;
  const double half = 0.5 * square;
  const double main = 1.0 - half;
  return main + (((1.0 - main) - half) + (square * square * polynomial(kTerms, square) - rest * error));
}

double sin_of_quadrant(int quadrant, const Angle& angle) {
  const double value =
      (quadrant & 1) == 0 ? sin_near_zero(angle.rest, angle.error) : cos_near_zero(angle.rest, angle.error);
  return (quadrant & 2) == 0 ? value : -value;
}

constexpr double kLargestAngle = 0x1p30;

// erf for |x| <= 1: 2/sqrt(pi) * sum over n of (-1)^n x^(2n+1) / (n! (2n+1)).
double erf_near_zero(double x) {
  constexpr std::array<double, 20> kTerms = [] {
    std::array<double, 20> terms{};
    double factorial = 1.0;  // exact below 2^53, and far inside a double's rounding beyond
    for (int n = 0; n < 20; ++n) {
      if (n > 0) factorial *= n;
      terms[static_cast<std::size_t>(n)] = (n % 2 == 0 ? 1.0 : -1.0) / (factorial * (2 * n + 1));
    }
    return terms;
  }();
  return kTwoOverSqrtPi * (x * polynomial(kTerms, x * x));
}

// erfc(x) e^(x^2) for 1 <= x <= 6, in three pieces. Each is the Chebyshev interpolant of the function on its interval
// (64 nodes, 300-bit arithmetic), cut at degree 14 and written in powers of t = (x - centre) / half-width. Cut there,
// its error is below 4e-17 once it is multiplied by e^(-x^2).
double scaled_erfc(double x) {
  constexpr std::array<double, 15> kTo175 = {0.34329588986212539,     -0.069118301240500446,   0.012636860434728368,
                                             -0.0021359199668578954,  0.00033786238286070774,  -5.0461381683114046e-05,
                                             7.1642492242099759e-06,  -9.7201873899919497e-07, 1.2656882968847022e-07,
                                             -1.5873051470770968e-08, 1.9228738104088859e-09,  -2.2538667797116621e-10,
                                             2.5659461018441198e-11,  -2.966700008967845e-12,  3.2007193285796143e-13};
  constexpr std::array<double, 15> kTo3 = {0.22050569220490665,     -0.050610705701379904,   0.011009769742058409,
                                           -0.0022847866357778566,  0.00045460557145523336,  -8.7075854270875721e-05,
                                           1.6109027088859812e-05,  -2.8863315535756942e-06, 5.0204622154806544e-07,
                                           -8.4949722625222256e-08, 1.4005650916448598e-08,  -2.2460422933089519e-09,
                                           3.530802076489599e-10,   -5.9276007352877734e-11, 8.9513317027242323e-12};
  constexpr std::array<double, 15> kTo6 = {0.12248480427383401,     -0.039023892947276546,   0.012179532228822171,
                                           -0.0037279443619705377,  0.0011201614063213897,   -0.00033071444973693977,
                                           9.6014491374646788e-05,  -2.7429792972318645e-05, 7.7169292505747887e-06,
                                           -2.1433273621402888e-06, 5.8598115939220593e-07,  -1.5260695416539274e-07,
                                           4.0456436379674024e-08,  -1.4204093331776108e-08, 3.7237579424541397e-09};
  if (x < 1.75) return polynomial(kTo175, (x - 1.375) / 0.375);
  if (x < 3.0) return polynomial(kTo3, (x - 2.375) / 0.625);
  return polynomial(kTo6, (x - 4.5) / 1.5);
}

}  // namespace

double exp(double x) {
  if (x != x) return x;
  return exp_of_sum(x, 0.0);
}

double log(double x) {
  if (x != x) return x;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  if ((bits << 1) == 0) return -kInfinity;
  if ((bits >> 63) != 0) return kNan;
  if (x == kInfinity) return x;
  const auto [exponent, f] = decompose(x);
  const double s = f / (2.0 + f);
  const double square = s * s;
  // log(1 + f) = f - f^2/2 + s (f^2/2 + series): the large terms f and f^2/2 carry no rounding of s.
  const double half_square = 0.5 * f * f;
  const double series = square * (2.0 / 3 + square * polynomial(kAtanhTerms, square));
  const double whole = exponent;
  return whole * kLn2High - ((half_square - (s * (half_square + series) + whole * kLn2Low)) - f);
}

double sin(double x) {
  if (!(x >= -kLargestAngle && x <= kLargestAngle)) return kNan;
  const Angle angle = reduce_by_half_pi(x);
  if (angle.quadrant == 0 && angle.rest == 0.0) return x;  // -0 stays -0
  return sin_of_quadrant(angle.quadrant, angle);
}

double cos(double x) {
  if (!(x >= -kLargestAngle && x <= kLargestAngle)) return kNan;
  const Angle angle = reduce_by_half_pi(x);
  return sin_of_quadrant((angle.quadrant + 1) & 3, angle);
}

double tanh(double x) {
  if (x != x) return x;
  const double magnitude = x < 0 ? -x : x;
  if (magnitude < 0x1p-28) return x;  // x - x^3/3 rounds to x
  if (magnitude > 22.0) return x < 0 ? -1.0 : 1.0;
  const double grown = exp_minus_one(2.0 * magnitude);
  const double value = grown / (grown + 2.0);
  return x < 0 ? -value : value;
}

double erf(double x) {
  if (x != x) return x;
  const double magnitude = x < 0 ? -x : x;
  if (magnitude <= 1.0) return erf_near_zero(x);
  if (magnitude >= 6.0) return x < 0 ? -1.0 : 1.0;  // erfc(6) = 2e-17 is less than half a unit in the last place
  // x^2 = upper^2 + (x - upper)(x + upper), the first exact: its rounding would be amplified by the exponential.
  const double upper = halves(magnitude).high;
  const double gauss = exp_of_sum(-(upper * upper), -((magnitude - upper) * (magnitude + upper)));
  const double value = 1.0 - gauss * scaled_erfc(magnitude);
  return x < 0 ? -value : value;
}

double pow(double base, double exponent) {
  if (exponent == 0.0 || base == 1.0) return 1.0;
  if (base != base || exponent != exponent || base < 0) return kNan;
  if ((std::bit_cast<std::uint64_t>(base) << 1) == 0) return exponent > 0 ? 0.0 : kInfinity;
  if (base == kInfinity) return exponent > 0 ? kInfinity : 0.0;
  const Pair logarithm = log_pair(base);
  const double estimate = exponent * logarithm.high;
  if (estimate > 1000.0) return kInfinity;
  if (estimate < -1000.0) return 0.0;
  const Pair product = two_product(exponent, logarithm.high);
  const Pair sum = two_sum(product.high, product.low + exponent * logarithm.low);
  return exp_of_sum(sum.high, sum.low);
}

double pow_int(double base, std::uint64_t exponent) {
  double result = 1.0;
  double square = base;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= square;
    square *= square;
  }
  return result;
}

}  // namespace tessera::math
