// Elementary functions in double, written here so that no libm result decides a bit of a training run. Each is accurate
// to a few ulp of double and is rounded once, to fp32, by its user. Plain mul/add only (the build forbids contraction).
#pragma once

#include <cstdint>

namespace tessera::math {

double exp(double x);  // 0 below -745, +inf above 709.78
double log(double x);  // x > 0; -inf at 0, NaN below
double sin(double x);  // |x| up to 2^30 (argument reduced by pi/2 in four parts); NaN beyond
double cos(double x);
double tanh(double x);
double erf(double x);
double pow(double base, double exponent);             // base > 0: exp(exponent * log(base)) with a compensated product
double pow_int(double base, std::uint64_t exponent);  // by squaring; exact order of products for bias corrections

}  // namespace tessera::math
