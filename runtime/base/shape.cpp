#include "runtime/base/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/error.h"

namespace tessera {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  require(extents.size() <= kMaxRank, "a shape has at most four extents");
  for (const std::int64_t extent : extents) {
    require(extent >= 0, "an extent is not negative");
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

std::int64_t Shape::num_elements() const {
  std::int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) {
    require(!__builtin_mul_overflow(product, (*this)[axis], &product), "a shape's element count fits 63 bits");
  }
  return product;
}

std::string Shape::str() const {
  return fmt::format("[{}]", fmt::join(extents_.begin(), extents_.begin() + rank_, ", "));
}

}  // namespace tessera
