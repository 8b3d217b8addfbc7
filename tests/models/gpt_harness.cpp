#include "tests/models/gpt_harness.h"

#include <algorithm>

#include "runtime/base/float_environment.h"
#include "runtime/base/hash.h"
#include "runtime/base/rng.h"

namespace tessera::test {

MicroBatch Tokens::view() const {
  const auto n = static_cast<std::int64_t>(inputs.size());
  return {.tokens = ConstTensorView(inputs.data(), {n}, DType::kInt32),
          .targets = ConstTensorView(targets.data(), {n}, DType::kInt32)};
}

Tokens random_tokens(const ModelConfig& model, std::int64_t micro_batch_size, std::uint64_t seed) {
  const CounterRng inputs(seed, RandomPurpose::kTest, 0);
  const CounterRng targets(seed, RandomPurpose::kTest, 1);
  Tokens t;
  for (std::int64_t i = 0; i < micro_batch_size * model.seq_len; ++i) {
    const auto vocabulary = static_cast<std::uint64_t>(model.vocab_size);
    t.inputs.push_back(static_cast<std::int32_t>(inputs.below(static_cast<std::uint64_t>(i), vocabulary)));
    t.targets.push_back(static_cast<std::int32_t>(targets.below(static_cast<std::uint64_t>(i), vocabulary)));
  }
  return t;
}

ModelConfig small_gpt2() {
  ModelConfig m;
  m.num_layers = 2;
  m.num_heads = 4;
  m.hidden_size = 32;
  m.seq_len = 16;
  m.vocab_size = 67;
  return m;
}

ModelConfig small_llama() {
  ModelConfig m = small_gpt2();
  m.num_kv_heads = 2;
  m.intermediate_size = 88;
  m.norm = "rmsnorm";
  m.activation = "swiglu";
  m.positions = "rope";
  m.bias = false;
  m.tie_word_embeddings = false;
  return m;
}

GptHarness::GptHarness(const ModelConfig& model, std::int64_t micro_batch_size, int num_threads, const LossConfig& loss)
    : device_(CpuDeviceOptions{.num_threads = num_threads}),
      stream_(device_.create_stream("compute", StreamMode::kCompute)),
      spec_(describe_gpt(model, micro_batch_size, num_threads)) {
  set_float_environment();
  for (const ParameterSpec& p : spec_.parameters) table_.push_back(make(p.shape, MemoryCategory::kParameters));
  for (const SegmentSpec& segment : spec_.segments) {
    auto& parameters = parameters_.emplace_back();
    auto& gradients = gradients_.emplace_back();
    for (const int index : segment.parameters) {
      parameters.push_back(table_[static_cast<std::size_t>(index)]);
      gradients.push_back(make(parameters.back().shape, MemoryCategory::kGradients));
    }
  }
  runner_ = std::make_unique<GptRunner>(model, loss, micro_batch_size, device_, stream_.view());
}

GptHarness::~GptHarness() = default;

TensorView GptHarness::make(const Shape& shape, MemoryCategory category) {
  const auto bytes = static_cast<std::size_t>(shape.num_elements()) * sizeof(float);
  buffers_.push_back(device_.allocator().allocate(bytes, category, stream_.view()));
  return {buffers_.back().data(), shape};
}

void GptHarness::fill_weights(std::uint64_t seed) {
  for (std::size_t k = 0; k < table_.size(); ++k) {
    const std::span<float> values = parameter(static_cast<int>(k));
    const float offset = spec_.parameters[k].init == InitKind::kOne ? 1.0F : 0.0F;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t bits = mix64(seed + (static_cast<std::uint64_t>(k) << 32) + i) >> 48;
      const float u = static_cast<float>(bits) / 32768.0F - 1.0F;
      values[i] = offset + u / 4.0F;
    }
  }
}

LossSum GptHarness::step(const Tokens& tokens, bool accumulate, float gradient_scale) {
  const MicroBatch batch = tokens.view();
  const int head = num_segments() - 1;
  for (int s = 0; s < head; ++s) runner_->forward(s, batch, parameters(s));
  const LossSum loss = runner_->head_loss(batch, parameters(head), gradients(head), accumulate, gradient_scale);
  for (int s = head - 1; s >= 0; --s) runner_->backward(s, batch, parameters(s), gradients(s), accumulate);
  return loss;
}

LossSum GptHarness::evaluate(const Tokens& tokens) {
  const int head = num_segments() - 1;
  for (int s = 0; s < head; ++s) runner_->forward_only(s, tokens.view(), parameters(s));
  return runner_->evaluate_head(tokens.view(), parameters(head));
}

std::vector<float> GptHarness::all_logits(const Tokens& tokens) {
  const int head = num_segments() - 1;
  for (int s = 0; s < head; ++s) runner_->forward_only(s, tokens.view(), parameters(s));
  const auto vocabulary = static_cast<std::size_t>(table_[0].shape[0]);
  std::vector<float> logits(tokens.inputs.size() * vocabulary);
  for (std::size_t row = 0; row < tokens.inputs.size(); ++row)
    runner_->logits(static_cast<std::int64_t>(row), parameters(head),
                    std::span(logits).subspan(row * vocabulary, vocabulary));
  return logits;
}

std::span<float> GptHarness::parameter(int index) {
  const TensorView& view = table_[static_cast<std::size_t>(index)];
  return {view.as<float>(), static_cast<std::size_t>(view.num_elements())};
}

std::span<float> GptHarness::gradient(int segment, int position) {
  const TensorView& view = gradients(segment)[static_cast<std::size_t>(position)];
  return {view.as<float>(), static_cast<std::size_t>(view.num_elements())};
}

std::string GptHarness::gradient_name(int segment, int position) const {
  const SegmentSpec& s = spec_.segments[static_cast<std::size_t>(segment)];
  const int index = s.parameters[static_cast<std::size_t>(position)];
  if (s.name == "head" && index == 0) return "head.weight";
  return spec_.parameters[static_cast<std::size_t>(index)].name;
}

std::vector<float> GptHarness::all_gradients() {
  std::vector<float> all;
  for (int s = 0; s < num_segments(); ++s)
    for (std::size_t p = 0; p < gradients(s).size(); ++p) {
      const std::span<float> g = gradient(s, static_cast<int>(p));
      all.insert(all.end(), g.begin(), g.end());
    }
  return all;
}

void GptHarness::fill_gradients(float value) {
  for (int s = 0; s < num_segments(); ++s)
    for (std::size_t p = 0; p < gradients(s).size(); ++p) std::ranges::fill(gradient(s, static_cast<int>(p)), value);
}

std::int64_t GptHarness::allocated(MemoryCategory category) {
  return device_.allocator().stats().by_category[static_cast<std::size_t>(category)].allocated;
}

}  // namespace tessera::test
