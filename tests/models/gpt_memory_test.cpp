// What describe_gpt predicts is what the allocator hands out.
#include <gtest/gtest.h>

#include <ostream>

#include "runtime/base/error.h"
#include "tests/models/gpt_harness.h"

namespace tessera {
namespace {

struct MemoryCase {
  const char* name;
  ModelConfig model;
  std::int64_t micro_batch_size;
  friend std::ostream& operator<<(std::ostream& out, const MemoryCase& c) { return out << c.name; }
};

MemoryCase odd_sizes() {  // nothing is a multiple of 64 bytes
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

MemoryCase wide() {
  ModelConfig m = test::small_gpt2();
  m.hidden_size = 128;
  m.seq_len = 96;
  m.vocab_size = 301;
  return {"wide", m, 4};
}

class GptMemory : public ::testing::TestWithParam<MemoryCase> {
 protected:
  // Compares what `call` takes from the allocator with what was predicted.
  template <typename Call>
  static void expect_call(test::GptHarness& gpt, const SegmentMemory& expected, const char* what, const Call& call) {
    Allocator& allocator = gpt.device().allocator();
    allocator.reset_peaks();
    const MemoryStats before = allocator.stats();
    call();
    const MemoryStats after = allocator.stats();
    const auto counts = [](const MemoryStats& stats, MemoryCategory category) {
      return stats.by_category[static_cast<std::size_t>(category)];
    };
    const auto at_peak = [](const MemoryStats& stats, MemoryCategory category) {
      return stats.at_peak[static_cast<std::size_t>(category)];
    };
    constexpr auto kActivations = MemoryCategory::kActivations;
    constexpr auto kWorkspace = MemoryCategory::kWorkspace;
    const SegmentMemory measured{
        .kept = counts(after, kActivations).allocated - counts(before, kActivations).allocated,
        .activations_peak = counts(after, kActivations).allocated_peak - counts(before, kActivations).allocated,
        .workspace_peak = counts(after, kWorkspace).allocated_peak - counts(before, kWorkspace).allocated,
        .activations_at_peak = at_peak(after, kActivations) - counts(before, kActivations).allocated,
        .workspace_at_peak = at_peak(after, kWorkspace) - counts(before, kWorkspace).allocated};
    EXPECT_EQ(measured.kept, expected.kept) << what;
    EXPECT_EQ(measured.activations_peak, expected.activations_peak) << what;
    EXPECT_EQ(measured.workspace_peak, expected.workspace_peak) << what;
    EXPECT_EQ(measured.activations_at_peak + measured.workspace_at_peak,
              expected.activations_at_peak + expected.workspace_at_peak)
        << what;
    EXPECT_EQ(counts(after, kWorkspace).allocated, counts(before, kWorkspace).allocated) << what;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, GptMemory,
                         ::testing::Values(MemoryCase{"gpt2", test::small_gpt2(), 3},
                                           MemoryCase{"llama", test::small_llama(), 3}, odd_sizes(), wide()),
                         [](const auto& test) { return test.param.name; });

TEST_P(GptMemory, ForwardKeepsAndBackwardFreesTheSameBytes) {
  const auto& [name, model, micro_batch_size] = GetParam();
  const ModelSpec spec = describe_gpt(model, micro_batch_size);
  std::int64_t kept = 0;
  for (const SegmentSpec& segment : spec.segments) kept += segment.forward.kept + segment.backward.kept;
  EXPECT_EQ(kept, 0);
}

// Every call of a training step takes what its segment says, in each category and in all, and leaves what it says.
TEST_P(GptMemory, EveryCallOfAStepIsPredictedToTheByte) {
  const auto& [name, model, micro_batch_size] = GetParam();
  for (const int threads : {1, 3}) {
    test::GptHarness gpt(model, micro_batch_size, threads);
    gpt.fill_weights(1);
    const test::Tokens tokens = test::random_tokens(model, micro_batch_size, 2);
    const ModelSpec spec = describe_gpt(model, micro_batch_size, threads);
    const int head = gpt.num_segments() - 1;
    EXPECT_EQ(gpt.allocated(MemoryCategory::kWorkspace), spec.constant_bytes);
    for (int s = 0; s < head; ++s) {
      expect_call(gpt, spec.segments[static_cast<std::size_t>(s)].forward, "forward",
                  [&] { gpt.runner().forward(s, tokens.view(), gpt.parameters(s)); });
    }
    expect_call(gpt, spec.segments.back().backward, "head",
                [&] { gpt.runner().head_loss(tokens.view(), gpt.parameters(head), gpt.gradients(head), false, 1.0F); });
    for (int s = head - 1; s >= 0; --s) {
      expect_call(gpt, spec.segments[static_cast<std::size_t>(s)].backward, "backward",
                  [&] { gpt.runner().backward(s, tokens.view(), gpt.parameters(s), gpt.gradients(s), false); });
    }
    EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), 0);
  }
}

TEST_P(GptMemory, EveryCallOfAnEvaluationIsPredictedToTheByte) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  const test::Tokens tokens = test::random_tokens(model, micro_batch_size, 2);
  const int head = gpt.num_segments() - 1;
  std::vector<float> logits(static_cast<std::size_t>(model.vocab_size));
  for (const bool losses : {true, false}) {
    for (int s = 0; s < head; ++s) {
      expect_call(gpt, gpt.spec().segments[static_cast<std::size_t>(s)].evaluate, "evaluate",
                  [&] { gpt.runner().forward_only(s, tokens.view(), gpt.parameters(s)); });
    }
    if (losses) {
      expect_call(gpt, gpt.spec().segments.back().evaluate, "losses",
                  [&] { gpt.runner().evaluate_head(tokens.view(), gpt.parameters(head)); });
      EXPECT_EQ(gpt.allocated(MemoryCategory::kActivations), 0);
    } else {
      expect_call(gpt, gpt.spec().segments.back().logits, "logits",
                  [&] { gpt.runner().logits(0, gpt.parameters(head), logits); });
    }
  }
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
