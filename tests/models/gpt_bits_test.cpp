// What must not change a bit.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/models/gpt_harness.h"

namespace tessera {
namespace {

// hidden 768, 12 heads: wide enough for every product to be cut into several tiles.
ModelConfig wide(ModelConfig m) {
  m.num_heads = 12;
  m.hidden_size = 768;
  m.intermediate_size = 3072;
  m.seq_len = 128;
  m.vocab_size = 4099;
  return m;
}

struct BitsCase {
  const char* name;
  ModelConfig model;
  std::int64_t micro_batch_size;
  friend std::ostream& operator<<(std::ostream& out, const BitsCase& c) { return out << c.name; }
};

constexpr auto kName = [](const auto& test) { return test.param.name; };
const BitsCase kSmall[] = {{"gpt2", test::small_gpt2(), 3}, {"llama", test::small_llama(), 3}};
const BitsCase kWide[] = {{"wide_gpt2", wide(test::small_gpt2()), 4}, {"wide_llama", wide(test::small_llama()), 1}};

class GptBits : public ::testing::TestWithParam<BitsCase> {};
INSTANTIATE_TEST_SUITE_P(Small, GptBits, ::testing::ValuesIn(kSmall), kName);
INSTANTIATE_TEST_SUITE_P(Wide, GptBits, ::testing::ValuesIn(kWide), kName);

// What has nothing to do with width.
class GptSmallBits : public GptBits {};
INSTANTIATE_TEST_SUITE_P(Small, GptSmallBits, ::testing::ValuesIn(kSmall), kName);

TEST_P(GptBits, AreTheSameWithOneAndTwoThreads) {
  const BitsCase& p = GetParam();
  const test::Tokens tokens = test::random_tokens(p.model, p.micro_batch_size, 2);
  const auto run = [&](int num_threads) {
    test::GptHarness gpt(p.model, p.micro_batch_size, num_threads);
    gpt.fill_weights(1);
    const LossSum loss = gpt.step(tokens, false, 1.0F / 512);
    return std::pair{loss.sum.value(), gpt.all_gradients()};
  };
  const auto one = run(1), two = run(2);
  EXPECT_EQ(one.first, two.first);
  EXPECT_TRUE(one.second == two.second);
}

TEST_P(GptBits, OfEvaluationAreThoseOfTraining) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  test::Tokens tokens = test::random_tokens(model, micro_batch_size, 2);
  tokens.targets[3] = -100;
  const LossSum training = gpt.step(tokens, false, 1.0F);
  const LossSum evaluation = gpt.evaluate(tokens);
  EXPECT_EQ(evaluation.sum.export_words(), training.sum.export_words());
  EXPECT_EQ(evaluation.max_loss, training.max_loss);
  EXPECT_EQ(evaluation.num_targets, training.num_targets);
}

TEST_P(GptSmallBits, OfAMicroBatchDoNotDependOnAnotherInFlight) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  const test::Tokens a = test::random_tokens(model, micro_batch_size, 2),
                     b = test::random_tokens(model, micro_batch_size, 3);
  gpt.step(a, false, 1.0F);
  gpt.step(b, true, 1.0F);
  const std::vector<float> one_after_the_other = gpt.all_gradients();

  const int head = gpt.num_segments() - 1;
  GptRunner& runner = gpt.runner();
  for (int s = 0; s < head; ++s) {
    runner.forward(s, a.view(), gpt.parameters(s), 0);
    runner.forward(s, b.view(), gpt.parameters(s), 1);
  }
  runner.head_loss(a.view(), gpt.parameters(head), gpt.gradients(head), false, 1.0F, 0);
  runner.head_loss(b.view(), gpt.parameters(head), gpt.gradients(head), true, 1.0F, 1);
  for (int s = head - 1; s >= 0; --s) {
    runner.backward(s, a.view(), gpt.parameters(s), gpt.gradients(s), false, 0);
    runner.backward(s, b.view(), gpt.parameters(s), gpt.gradients(s), true, 1);
  }
  EXPECT_TRUE(gpt.all_gradients() == one_after_the_other);
}

TEST_P(GptSmallBits, OfLogitsAreTheSameEachTime) {
  const auto& [name, model, micro_batch_size] = GetParam();
  test::GptHarness gpt(model, micro_batch_size);
  gpt.fill_weights(1);
  const test::Tokens tokens = test::random_tokens(model, micro_batch_size, 2);
  const int head = gpt.num_segments() - 1;
  std::vector<float> first(static_cast<std::size_t>(model.vocab_size)), second(first.size());
  for (std::vector<float>* out : {&first, &second}) {
    for (int s = 0; s < head; ++s) gpt.runner().forward_only(s, tokens.view(), gpt.parameters(s));
    gpt.runner().logits(7, gpt.parameters(head), *out);
  }
  EXPECT_TRUE(first == second);
}

}  // namespace
}  // namespace tessera
