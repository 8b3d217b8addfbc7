// What describe_gpt predicts is what the allocator hands out.
#include <gtest/gtest.h>

#include <ostream>

#include "runtime/base/error.h"
#include "tests/models/gpt_harness.h"

namespace tessera {
namespace {

struct Case {
  const char* name;
  ModelConfig model;
  std::int64_t micro_batch_size;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

Case odd_sizes() {  // nothing is a multiple of 64 bytes
  ModelConfig m = test::small_llama();
  m.num_layers = 3;
  m.num_heads = 3;
  m.num_kv_heads = 1;
  m.head_dim = 6;
  m.hidden_size = 21;
  m.intermediate_size = 37;
  m.seq_len = 11;
  return {"odd", m, 1};
}

Case wide() {
  ModelConfig m = test::small_gpt2();
  m.hidden_size = 128;
  m.seq_len = 96;
  m.vocab_size = 301;
  return {"wide", m, 4};
}

class GptMemory : public ::testing::TestWithParam<Case> {
 protected:
  static std::int64_t peak(test::GptHarness& gpt, MemoryCategory category) {
    return gpt.device().allocator().stats().by_category[static_cast<std::size_t>(category)].allocated_peak;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, GptMemory,
                         ::testing::Values(Case{"gpt2", test::small_gpt2(), 3}, Case{"llama", test::small_llama(), 3},
                                           odd_sizes(), wide()),
                         [](const auto& test) { return test.param.name; });

TEST_P(GptMemory, ForwardKeepsTheSavedBytesAndBackwardFreesThem) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  const test::Tokens tokens = test::random_tokens(model, micro_batch_size, 2);
  const auto& segments = gpt.spec().segments;
  const int head = gpt.num_segments() - 1;

  std::int64_t expected = 0;
  EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), 0);
  for (int s = 0; s < head; ++s) {
    gpt.runner().forward(s, tokens.view(), gpt.parameters(s));
    expected += segments[static_cast<std::size_t>(s)].saved_bytes;
    EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), expected) << segments[static_cast<std::size_t>(s)].name;
  }
  gpt.device().allocator().reset_peaks();
  gpt.runner().head_loss(tokens.view(), gpt.parameters(head), gpt.gradients(head), false, 1.0F);
  EXPECT_EQ(peak(gpt, MemoryCategory::kActivations), expected + segments.back().saved_bytes);
  // The head gives its input back: as many bytes as its gradient takes.
  EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), expected);
  for (int s = head - 1; s >= 0; --s)
    gpt.runner().backward(s, tokens.view(), gpt.parameters(s), gpt.gradients(s), false);
  EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), 0);
}

TEST_P(GptMemory, ScratchPeaksAtTheWorkspaceBytes) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  const test::Tokens tokens = test::random_tokens(model, micro_batch_size, 2);
  const auto& segments = gpt.spec().segments;
  const int head = gpt.num_segments() - 1;
  const auto peak_of = [&](auto&& call) {
    gpt.device().allocator().reset_peaks();
    call();
    return peak(gpt, MemoryCategory::kWorkspace);
  };

  for (int s = 0; s < head; ++s)
    EXPECT_EQ(peak_of([&] { gpt.runner().forward(s, tokens.view(), gpt.parameters(s)); }),
              segments[static_cast<std::size_t>(s)].forward_workspace_bytes)
        << segments[static_cast<std::size_t>(s)].name << " forward";
  EXPECT_EQ(peak_of([&] { gpt.runner().evaluate_head(tokens.view(), gpt.parameters(head)); }),
            segments.back().forward_workspace_bytes);
  EXPECT_EQ(
      peak_of([&] { gpt.runner().head_loss(tokens.view(), gpt.parameters(head), gpt.gradients(head), false, 1.0F); }),
      segments.back().backward_workspace_bytes);
  for (int s = head - 1; s >= 0; --s)
    EXPECT_EQ(peak_of([&] { gpt.runner().backward(s, tokens.view(), gpt.parameters(s), gpt.gradients(s), false); }),
              segments[static_cast<std::size_t>(s)].backward_workspace_bytes)
        << segments[static_cast<std::size_t>(s)].name << " backward";
}

TEST_P(GptMemory, EvaluationKeepsOneResidualStream) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  gpt.evaluate(test::random_tokens(model, micro_batch_size, 2));
  EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), gpt.spec().segments[0].saved_bytes);
}

TEST_P(GptMemory, ResetDropsWhatAnInterruptedStepHeld) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  const test::Tokens tokens = test::random_tokens(model, micro_batch_size, 2);
  for (int slot = 0; slot < 2; ++slot)
    for (int s = 0; s < 2; ++s) gpt.runner().forward(s, tokens.view(), gpt.parameters(s), slot);
  EXPECT_GT(gpt.allocated(MemoryCategory::kActivations), 0);
  gpt.runner().reset();
  EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), 0);
}

TEST(GptRunner, RefusesCallsOutOfOrder) {
  test::GptHarness gpt(test::small_gpt2(), 2);
  gpt.fill_weights(1);
  const test::Tokens tokens = test::random_tokens(test::small_gpt2(), 2, 2);
  EXPECT_THROW(gpt.runner().forward(1, tokens.view(), gpt.parameters(1)), InternalError);
  EXPECT_THROW(gpt.runner().evaluate_head(tokens.view(), gpt.parameters(3)), InternalError);
  EXPECT_THROW(gpt.runner().backward(2, tokens.view(), gpt.parameters(2), gpt.gradients(2), false), InternalError);
  EXPECT_THROW(gpt.runner().forward(0, tokens.view(), gpt.parameters(1)), InternalError);  // a block's parameters
  const test::Tokens short_tokens = test::random_tokens(test::small_gpt2(), 1, 2);
  EXPECT_THROW(gpt.runner().forward(0, short_tokens.view(), gpt.parameters(0)), InternalError);
}

}  // namespace
}  // namespace tessera
