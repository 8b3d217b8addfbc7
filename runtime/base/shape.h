// The extents of a dense, row-major tensor of at most four dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace tessera {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  // Product of the extents; 1 for a scalar (rank 0).
  std::int64_t num_elements() const;
  // "[4, 256, 768]".
  std::string str() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace tessera
