#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/gpt.h"
#include "runtime/base/error.h"
#include "tests/models/gpt_harness.h"

namespace tessera {
namespace {

std::vector<std::string> names(const ModelSpec& spec) {
  std::vector<std::string> result;
  for (const ParameterSpec& p : spec.parameters) result.push_back(p.name);
  return result;
}

ModelConfig gpt2_124m() {
  ModelConfig m;
  m.num_layers = 12;
  m.num_heads = 12;
  m.hidden_size = 768;
  m.seq_len = 1024;
  m.vocab_size = 50257;
  return m;
}

TEST(DescribeGpt, NamesTheParametersOfTheGpt2FamilyInOrder) {
  ModelConfig m = test::small_gpt2();
  m.num_layers = 1;
  const std::vector<std::string> expected = {"embedding.token.weight",
                                             "embedding.position.weight",
                                             "block.0.attention_norm.weight",
                                             "block.0.attention_norm.bias",
                                             "block.0.attention.query.weight",
                                             "block.0.attention.query.bias",
                                             "block.0.attention.key.weight",
                                             "block.0.attention.key.bias",
                                             "block.0.attention.value.weight",
                                             "block.0.attention.value.bias",
                                             "block.0.attention.output.weight",
                                             "block.0.attention.output.bias",
                                             "block.0.feed_forward_norm.weight",
                                             "block.0.feed_forward_norm.bias",
                                             "block.0.feed_forward.up.weight",
                                             "block.0.feed_forward.up.bias",
                                             "block.0.feed_forward.down.weight",
                                             "block.0.feed_forward.down.bias",
                                             "final_norm.weight",
                                             "final_norm.bias"};
  EXPECT_EQ(names(describe_gpt(m, 1)), expected);
}

TEST(DescribeGpt, NamesTheParametersOfTheLlamaFamilyInOrder) {
  ModelConfig m = test::small_llama();
  m.num_layers = 1;
  const std::vector<std::string> expected = {"embedding.token.weight",
                                             "block.0.attention_norm.weight",
                                             "block.0.attention.query.weight",
                                             "block.0.attention.key.weight",
                                             "block.0.attention.value.weight",
                                             "block.0.attention.output.weight",
                                             "block.0.feed_forward_norm.weight",
                                             "block.0.feed_forward.gate.weight",
                                             "block.0.feed_forward.up.weight",
                                             "block.0.feed_forward.down.weight",
                                             "final_norm.weight",
                                             "head.weight"};
  EXPECT_EQ(names(describe_gpt(m, 1)), expected);
}

TEST(DescribeGpt, RmsNormHasNoBiasWhereLinearLayersHave) {
  ModelConfig m = test::small_gpt2();
  m.norm = "rmsnorm";
  const auto all = names(describe_gpt(m, 1));
  EXPECT_EQ(std::ranges::count(all, "final_norm.bias"), 0);
  EXPECT_EQ(std::ranges::count(all, "block.1.feed_forward.down.bias"), 1);
}

TEST(DescribeGpt, CountsTheParametersOfPublishedModels) {
  // GPT-2 small and Llama 3 8B, as their authors' files count.
  EXPECT_EQ(describe_gpt(gpt2_124m(), 1).num_parameters(), 124'439'808);
  ModelConfig llama;
  llama.num_layers = 32;
  llama.num_heads = 32;
  llama.num_kv_heads = 8;
  llama.hidden_size = 4096;
  llama.intermediate_size = 14336;
  llama.seq_len = 8192;
  llama.vocab_size = 128256;
  llama.norm = "rmsnorm";
  llama.activation = "swiglu";
  llama.positions = "rope";
  llama.bias = false;
  llama.tie_word_embeddings = false;
  EXPECT_EQ(describe_gpt(llama, 1).num_parameters(), 8'030'261'248);
}

TEST(DescribeGpt, SegmentsAreEmbeddingBlocksAndHead) {
  const ModelSpec spec = describe_gpt(test::small_gpt2(), 1);
  ASSERT_EQ(spec.segments.size(), 4U);
  EXPECT_EQ(spec.segments[0].name, "embedding");
  EXPECT_EQ(spec.segments[1].name, "block.0");
  EXPECT_EQ(spec.segments[2].name, "block.1");
  EXPECT_EQ(spec.segments[3].name, "head");
  EXPECT_EQ(spec.segments[0].parameters, (std::vector<int>{0, 1}));
  EXPECT_EQ(spec.segments[1].parameters.size(), 16U);
  EXPECT_EQ(spec.segments[2].parameters.front(), 18);
}

TEST(DescribeGpt, ATiedHeadUsesTheTokenTable) {
  const ModelSpec tied = describe_gpt(test::small_gpt2(), 1);
  EXPECT_TRUE(tied.parameters[0].tied);
  EXPECT_EQ(tied.segments.back().parameters, (std::vector<int>{34, 35, 0}));  // final_norm.weight, .bias, token table

  const ModelSpec untied = describe_gpt(test::small_llama(), 1);
  for (const ParameterSpec& p : untied.parameters) EXPECT_FALSE(p.tied) << p.name;
  EXPECT_EQ(untied.parameters[static_cast<std::size_t>(untied.segments.back().parameters.back())].name, "head.weight");
}

TEST(DescribeGpt, InitialValuesAndDecayFollowTheKindOfParameter) {
  const ModelSpec spec = describe_gpt(gpt2_124m(), 1);
  for (const ParameterSpec& p : spec.parameters) {
    const bool matrix = p.shape.rank() == 2;
    const bool into_stream =
        p.name.ends_with("attention.output.weight") || p.name.ends_with("feed_forward.down.weight");
    EXPECT_EQ(p.decay, matrix) << p.name;
    if (matrix) {
      EXPECT_EQ(p.init, InitKind::kNormal) << p.name;
      // 0.02 / √24 for what adds into the residual stream of 12 layers.
      EXPECT_NEAR(p.init_std, into_stream ? 0.004082482904638630 : 0.02, 1e-17) << p.name;
    } else {
      EXPECT_EQ(p.init, p.name.ends_with("norm.weight") ? InitKind::kOne : InitKind::kZero) << p.name;
    }
  }
}

TEST(DescribeGpt, CountsFlopsOfProductsAndOfTheCausalHalfOfAttention) {
  // B 1, S 16, H 32, I 128, V 67. Block: 2·16·(4·32² + 2·32·128) + 2·32·16·17; head: 2·16·32·67.
  const ModelSpec spec = describe_gpt(test::small_gpt2(), 1);
  EXPECT_EQ(spec.segments[0].forward_flops, 0);
  EXPECT_EQ(spec.segments[1].forward_flops, 393'216 + 17'408);
  EXPECT_EQ(spec.segments[3].forward_flops, 68'608);
  // Grouped key and value heads (2 of 4) and a gate, I 88: 2·16·(2·32² + 2·32·16 + 3·32·88) + the same attention.
  EXPECT_EQ(describe_gpt(test::small_llama(), 1).segments[1].forward_flops, 368'640 + 17'408);
}

TEST(DescribeGpt, ABlockOfGpt2Of1024TokensKeeps32MegabytesAtMost) {
  ModelConfig m = gpt2_124m();
  m.seq_len = 256;
  const ModelSpec spec = describe_gpt(m, 4);
  // [1024, 768] is 3,145,728 bytes: q, k, v, attention output, r and the block's output; [1024, 3072]: the activation's
  // input; four statistics [1024]; row sums [4, 12, 256].
  EXPECT_EQ(spec.segments[1].forward.kept, 6 * 3'145'728 + 12'582'912 + 4 * 4096 + 49'152);
  EXPECT_LE(spec.segments[1].forward.kept, 32'000'000);
}

TEST(DescribeGpt, RefusesWhatDoesNotFitTogether) {
  const auto refuses = [](auto change) {
    ModelConfig m = test::small_llama();
    change(m);
    EXPECT_THROW(describe_gpt(m, 1), ConfigError);
  };
  refuses([](ModelConfig& m) { m.num_kv_heads = 3; });
  refuses([](ModelConfig& m) { m.hidden_size = 30; });
  refuses([](ModelConfig& m) { m.head_dim = 7; });
  refuses([](ModelConfig& m) { m.dropout = 0.1; });
  refuses([](ModelConfig& m) { m.norm = "batchnorm"; });
  refuses([](ModelConfig& m) { m.activation = "tanh"; });
  refuses([](ModelConfig& m) { m.positions = "alibi"; });
  refuses([](ModelConfig& m) { m.num_layers = 0; });
}

}  // namespace
}  // namespace tessera
