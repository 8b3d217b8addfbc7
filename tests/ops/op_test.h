// What every operator test needs: a device with some threads, tensors with reproducible contents, and references in
// double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "runtime/base/rng.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/tensor_view.h"

namespace tessera::ops {

// A device and its compute stream.
class Cpu {
 public:
  explicit Cpu(int num_threads = 2)
      : device_({.num_threads = num_threads}), stream_(device_.create_stream("compute", StreamMode::kCompute)) {}
  StreamView stream() const { return stream_.view(); }
  CpuDevice& device() { return device_; }

 private:
  CpuDevice device_;
  Stream stream_;
};

// A tensor that owns its elements.
struct Tensor {
  Shape shape;
  std::vector<float> data;

  Tensor() = default;
  explicit Tensor(Shape s, float value = 0.0F) : shape(s), data(static_cast<std::size_t>(s.num_elements()), value) {}
  TensorView view() { return {data.data(), shape}; }
  ConstTensorView view() const { return {data.data(), shape}; }
  float& operator[](std::int64_t i) { return data[static_cast<std::size_t>(i)]; }
  float operator[](std::int64_t i) const { return data[static_cast<std::size_t>(i)]; }
  float& at(std::int64_t row, std::int64_t column) { return (*this)[row * shape[shape.rank() - 1] + column]; }
  float at(std::int64_t row, std::int64_t column) const { return (*this)[row * shape[shape.rank() - 1] + column]; }
  std::int64_t size() const { return static_cast<std::int64_t>(data.size()); }
};

// Uniform in [-scale, scale).
inline Tensor random_tensor(Shape shape, std::uint64_t stream, float scale = 1.0F) {
  const CounterRng rng(1, RandomPurpose::kTest, stream);
  Tensor result(shape);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    result[i] = scale * static_cast<float>(2.0 * rng.uniform(static_cast<std::uint64_t>(i)) - 1.0);
  }
  return result;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

using Doubles = std::vector<double>;

inline Doubles to_doubles(const Tensor& tensor) {
  return Doubles(tensor.data.begin(), tensor.data.end());
}

// |value - expected| <= tolerance * (1 + |expected|), for every element.
inline void expect_close(const std::vector<float>& values, const Doubles& expected, double tolerance,
                         const char* what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], tolerance * (1.0 + std::abs(expected[i]))) << what << " at " << i;
  }
}

// The gradient of a scalar function of x by central differences in double.
inline Doubles numeric_gradient(const std::function<double(const Doubles&)>& f, Doubles x, double step = 1e-5) {
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = f(x);
    x[i] = kept - step;
    const double below = f(x);
    x[i] = kept;
    gradient[i] = (above - below) / (2.0 * step);
  }
  return gradient;
}

inline double weighted_sum(const Doubles& values, const Tensor& weights) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * static_cast<double>(weights.data[i]);
  return sum;
}

}  // namespace tessera::ops
