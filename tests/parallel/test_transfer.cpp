// Copies and reductions that all host-memory backends share: short and streamed lengths, any alignment, in place.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "parallel/streaming.h"
#include "parallel/transfer.h"
#include "runtime/base/error.h"
#include "tests/support/conformance/data.h"

namespace tessera::testing {
namespace {

constexpr std::size_t kLong = kStreamingBytes / sizeof(float);

TEST(Transfer, CopiesEveryByteAtAnyAlignmentAndLengthAndNoneBeside) {
  std::vector<unsigned char> source(kStreamingBytes + 400);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 31 + i / 251);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4097},
                                  std::size_t{kStreamingBytes}, std::size_t{kStreamingBytes} + 77}) {
    for (const std::size_t shift : {0, 1, 17, 63}) {
      std::vector<unsigned char> destination(bytes + 256, 0xEE);
      copy_bytes(destination.data() + 64 + shift, source.data() + shift * 3, bytes);
      EXPECT_TRUE(std::equal(source.begin() + static_cast<std::ptrdiff_t>(shift * 3),
                             source.begin() + static_cast<std::ptrdiff_t>(shift * 3 + bytes),
                             destination.begin() + static_cast<std::ptrdiff_t>(64 + shift)));
      EXPECT_EQ(std::count(destination.begin(), destination.begin() + static_cast<std::ptrdiff_t>(64 + shift), 0xEE),
                static_cast<std::ptrdiff_t>(64 + shift));
      EXPECT_EQ(
          std::count(destination.begin() + static_cast<std::ptrdiff_t>(64 + shift + bytes), destination.end(), 0xEE),
          static_cast<std::ptrdiff_t>(192 - shift));
    }
  }
}

// Number of elements of a sum over `num_sources` ragged sources, shifted by `shift` elements, that miss the tree.
std::size_t wrong_sums(std::size_t num_sources, std::size_t count, std::size_t shift, bool in_place) {
  std::vector<std::vector<float>> sources(num_sources, std::vector<float>(count + 16));
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < num_sources; ++k) {
    for (std::size_t i = 0; i < count; ++i) sources[k][shift + i] = ragged(static_cast<int>(k), i);
    pointers.push_back(sources[k].data() + shift);
  }
  std::vector<float> apart(count + 16);
  float* destination = in_place ? sources[num_sources / 2].data() + shift : apart.data() + shift;
  reduce(DType::kFloat32, ReduceOp::kSum, destination, pointers, count);
  std::size_t wrong = 0;
  std::vector<float> addends(num_sources);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < num_sources; ++k) addends[k] = ragged(static_cast<int>(k), i);
    wrong += same_bits(destination[i], tree_of(addends)) ? 0U : 1U;
  }
  return wrong;
}

TEST(Transfer, SumsFollowTheTreeWhetherStreamedOrNot) {
  for (const std::size_t num_sources : {1U, 2U, 3U, 4U, 7U}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, kLong, kLong + 1029}) {
      for (const std::size_t shift : {0U, 3U}) {
        for (const bool in_place : {false, true}) {
          EXPECT_EQ(wrong_sums(num_sources, count, shift, in_place), 0U)
              << num_sources << " sources of " << count << (in_place ? ", in place" : "");
        }
      }
    }
  }
}

TEST(Transfer, IntegerSumsWrap) {
  const std::uint64_t a[2] = {std::numeric_limits<std::uint64_t>::max(), 1}, b[2] = {3, 4};
  std::uint64_t sums[2] = {};
  reduce(DType::kUInt64, ReduceOp::kSum, sums, std::vector<const void*>{a, b}, 2);
  EXPECT_EQ(sums[0], 2U);
  EXPECT_EQ(sums[1], 5U);
}

TEST(Transfer, ANanWinsEveryMinimumAndMaximumWhereverItStands) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float first[3] = {nan, 1, -2}, second[3] = {0, nan, 5};
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    float result[3] = {};
    reduce(DType::kFloat32, op, result, std::vector<const void*>{first, second}, 3);
    EXPECT_NE(result[0], result[0]);
    EXPECT_NE(result[1], result[1]);
    EXPECT_EQ(result[2], op == ReduceOp::kMin ? -2.0F : 5.0F);
  }
}

TEST(Transfer, WhatCannotBeReducedIsRefused) {
  float data = 0;
  EXPECT_THROW(reduce(DType::kFloat16, ReduceOp::kSum, &data, std::vector<const void*>{&data}, 1), InternalError);
}

TEST(Transfer, EvenSlicesDifferByAtMostOne) {
  EXPECT_EQ(even_slices(10, 4), (std::vector<std::uint64_t>{3, 3, 2, 2}));
  EXPECT_EQ(even_slices(2, 3), (std::vector<std::uint64_t>{1, 1, 0}));
  EXPECT_EQ(even_slices(0, 2), (std::vector<std::uint64_t>{0, 0}));
  EXPECT_EQ(offset_of({3, 3, 2, 2}, 3), 8U);
}

}  // namespace
}  // namespace tessera::testing
