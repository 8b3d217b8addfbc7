#include "runtime/ops/embedding.h"

#include "runtime/base/error.h"
#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

ConstTensorView token_view(const std::vector<std::int32_t>& tokens, std::int64_t sequences) {
  return {tokens.data(), {sequences, static_cast<std::int64_t>(tokens.size()) / sequences}, DType::kInt32};
}

TEST(Embedding, ForwardAddsTokenAndPosition) {
  const Cpu cpu;
  for (const std::int64_t features : {1, 7, 15, 16, 17, 67, 200}) {
    const std::vector<std::int32_t> tokens = {4, 0, 4, 2, 1, 4};
    const Tensor table = random_tensor({5, features}, 1);
    const Tensor positions = random_tensor({8, features}, 2);  // more rows than positions in use
    Tensor y({6, features});
    embedding_forward(cpu.stream(), {.tokens = token_view(tokens, 2),
                                     .token_table = table.view(),
                                     .position_table = positions.view(),
                                     .y = y.view()});
    Tensor without({6, features});
    embedding_forward(cpu.stream(),
                      {.tokens = token_view(tokens, 2), .token_table = table.view(), .y = without.view()});
    for (std::int64_t t = 0; t < 6; ++t) {
      for (std::int64_t c = 0; c < features; ++c) {
        const float row = table.at(tokens[static_cast<std::size_t>(t)], c);
        ASSERT_EQ(without.at(t, c), row);
        ASSERT_EQ(y.at(t, c), row + positions.at(t % 3, c));
      }
    }
  }
}

TEST(Embedding, BackwardAddsOccurrencesOfATokenAndSequencesOfAPosition) {
  const Cpu cpu;
  for (const std::int64_t features : {1, 15, 17, 130}) {
    const std::vector<std::int32_t> tokens = {3, 0, 3, 3, 1, 0};
    const Tensor dy = random_tensor({6, features}, 3);
    for (const bool accumulate : {false, true}) {
      Tensor dtable({5, features}, 0.5F);
      Tensor dposition({4, features}, 0.25F);
      embedding_backward(cpu.stream(), {.tokens = token_view(tokens, 2),
                                        .dy = dy.view(),
                                        .dtoken_table = dtable.view(),
                                        .dposition_table = dposition.view(),
                                        .accumulate = accumulate});
      for (std::int64_t c = 0; c < features; ++c) {
        const double token_start = accumulate ? 0.5 : 0.0;
        const double position_start = accumulate ? 0.25 : 0.0;
        ASSERT_NEAR(dtable.at(0, c), token_start + dy.at(1, c) + dy.at(5, c), 1e-6);
        ASSERT_NEAR(dtable.at(1, c), token_start + dy.at(4, c), 1e-6);
        ASSERT_EQ(dtable.at(2, c), token_start);
        ASSERT_NEAR(dtable.at(3, c), token_start + dy.at(0, c) + dy.at(2, c) + dy.at(3, c), 1e-6);
        ASSERT_EQ(dtable.at(4, c), token_start);
        for (std::int64_t p = 0; p < 3; ++p) {
          ASSERT_NEAR(dposition.at(p, c), position_start + dy.at(p, c) + dy.at(p + 3, c), 1e-6);
        }
        ASSERT_EQ(dposition.at(3, c), position_start);
      }
    }
  }
}

// 10^8 swallows a 1 that is added to it: only the order of t gives 0.
TEST(Embedding, OccurrencesAreAddedInOrder) {
  for (const int threads : {1, 2, 3, 4}) {
    const Cpu cpu(threads);
    const std::vector<std::int32_t> tokens = {0, 0, 0, 0};
    Tensor dy({4, 150});
    for (std::int64_t c = 0; c < 150; ++c) {
      dy.at(0, c) = 1e8F;
      dy.at(1, c) = 1.0F;
      dy.at(2, c) = -1e8F;
      dy.at(3, c) = 3.0F;
    }
    Tensor dtable({1, 150});
    embedding_backward(cpu.stream(), {.tokens = token_view(tokens, 1), .dy = dy.view(), .dtoken_table = dtable.view()});
    EXPECT_EQ(dtable.data, std::vector<float>(150, 3.0F));
  }
}

TEST(Embedding, TokensOutsideTheTableAreRefused) {
  const Cpu cpu;
  const Tensor table({5, 4});
  Tensor y({1, 4});
  for (const std::int32_t token : {5, -1}) {
    const std::vector<std::int32_t> tokens = {token};
    EXPECT_THROW(
        embedding_forward(cpu.stream(), {.tokens = token_view(tokens, 1), .token_table = table.view(), .y = y.view()}),
        InternalError);
  }
}

}  // namespace
}  // namespace tessera::ops
