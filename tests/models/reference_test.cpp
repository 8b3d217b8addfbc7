// Against PyTorch in float64: numbers made once by tools/make_reference.py.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/models/gpt_harness.h"

namespace tessera {
namespace {

struct Reference {
  ModelConfig model;
  LossConfig loss;
  std::int64_t micro_batch_size = 0;
  std::uint64_t seed = 0;
  test::Tokens tokens;
  std::int64_t num_targets = 0;
  double loss_sum = 0, max_loss = 0;
  std::map<std::string, std::vector<float>> tensors;
};

Reference load(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/data/reference";
  const auto json = nlohmann::json::parse(std::ifstream(folder / (name + ".json")));
  Reference r;
  const auto& m = json.at("model");
  r.model.num_layers = m.at("num_layers");
  r.model.num_heads = m.at("num_heads");
  r.model.num_kv_heads = m.at("num_kv_heads").get<std::int64_t>();
  r.model.hidden_size = m.at("hidden_size");
  r.model.head_dim = m.at("head_dim").get<std::int64_t>();
  r.model.intermediate_size = m.at("intermediate_size").get<std::int64_t>();
  r.model.seq_len = m.at("seq_len");
  r.model.vocab_size = m.at("vocab_size");
  r.model.norm = m.at("norm");
  r.model.norm_eps = m.at("norm_eps");
  r.model.activation = m.at("activation");
  r.model.positions = m.at("positions");
  r.model.rope_theta = m.at("rope_theta");
  r.model.bias = m.at("bias");
  r.model.tie_word_embeddings = m.at("tie_word_embeddings");
  const auto& loss = json.at("loss");
  r.loss.label_smoothing = loss.at("label_smoothing");
  r.loss.z_loss = loss.at("z_loss");
  r.loss.ignore_index = loss.at("ignore_index");
  r.micro_batch_size = json.at("micro_batch_size");
  r.seed = json.at("seed");
  r.tokens.inputs = json.at("tokens").get<std::vector<std::int32_t>>();
  r.tokens.targets = json.at("targets").get<std::vector<std::int32_t>>();
  r.num_targets = json.at("num_targets");
  r.loss_sum = json.at("loss_sum");
  r.max_loss = json.at("max_loss");

  std::ifstream file(folder / (name + ".f32"), std::ios::binary);
  for (const auto& tensor : json.at("tensors")) {
    std::size_t n = 1;
    for (const auto& extent : tensor.at("shape")) n *= extent.get<std::size_t>();
    std::vector<float> values(n);
    file.seekg(static_cast<std::streamoff>(tensor.at("offset").get<std::size_t>() * sizeof(float)));
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(n * sizeof(float)));
    r.tensors[tensor.at("name")] = std::move(values);
  }
  EXPECT_TRUE(file.good()) << name << ".f32 is too short";
  return r;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

// ||a - b|| / ||b|| and max |a - b| / max |b| at most 1e-5. floor: what counts as the size of a tensor that is zero but
// for rounding.
void expect_close(std::span<const float> actual, std::span<const float> expected, const std::string& what,
                  double floor = 0) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double square = 0, largest = 0, largest_expected = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = static_cast<double>(actual[i]) - expected[i];
    square += difference * difference;
    largest = std::max(largest, std::abs(difference));
    largest_expected = std::max(largest_expected, std::abs(static_cast<double>(expected[i])));
  }
  EXPECT_LE(std::sqrt(square), 1e-5 * std::max(norm(expected), floor)) << what;
  EXPECT_LE(largest, 1e-5 * std::max(largest_expected, floor)) << what;
}

class GptReference : public ::testing::TestWithParam<std::string> {};

TEST_P(GptReference, LogitsAgree) {
  const Reference r = load(GetParam());
  test::GptHarness gpt(r.model, r.micro_batch_size, 1, r.loss);
  gpt.fill_weights(r.seed);
  expect_close(gpt.all_logits(r.tokens), r.tensors.at("logits"), "logits");
}

TEST_P(GptReference, LossAndEveryGradientAgree) {
  const Reference r = load(GetParam());
  test::GptHarness gpt(r.model, r.micro_batch_size, 1, r.loss);
  gpt.fill_weights(r.seed);
  const LossSum loss = gpt.step(r.tokens, false, 1.0F / static_cast<float>(r.num_targets));
  EXPECT_EQ(loss.num_targets, r.num_targets);
  EXPECT_NEAR(loss.sum.value(), r.loss_sum, 1e-6 * r.loss_sum);
  EXPECT_NEAR(loss.max_loss, r.max_loss, 1e-6 * r.max_loss);

  std::size_t compared = 0;
  for (int s = 0; s < gpt.num_segments(); ++s) {
    for (std::size_t p = 0; p < gpt.gradients(s).size(); ++p, ++compared) {
      const std::string name = gpt.gradient_name(s, static_cast<int>(p));
      // Without rope a key bias adds the same to all scores of a row: softmax does not see it and its gradient is 0 but
      // for rounding, so it is measured against the query bias's.
      double floor = 0;
      if (name.ends_with("key.bias") && r.model.positions == "learned")
        floor = norm(r.tensors.at("gradient " + name.substr(0, name.size() - 8) + "query.bias"));
      expect_close(gpt.gradient(s, static_cast<int>(p)), r.tensors.at("gradient " + name), name, floor);
    }
  }
  EXPECT_EQ(compared + 1, r.tensors.size());
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GptReference,
                         ::testing::Values("gpt2", "llama", "gelu_untied", "relu_rmsnorm_learned", "silu_rope_smoothed",
                                           "geglu_rope_biases", "long"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tessera
