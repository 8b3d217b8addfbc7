#include "models/gpt.h"

#include <utility>

#include "models/gpt_block.h"
#include "models/gpt_head.h"
#include "runtime/ops/embedding.h"

namespace tessera {
namespace {

// One micro-batch in flight.
struct Slot {
  DeviceTensor residual;                 // [T, H]: the output of the last segment that ran
  DeviceTensor gradient;                 // [T, H]: its gradient, from the head down; the one copy there is
  std::vector<BlockActivations> blocks;  // by layer
};

}  // namespace

struct GptRunner::State {
  State(const ModelConfig& model, const LossConfig& loss, std::int64_t micro_batch_size, StreamView compute)
      : context(model, loss, micro_batch_size, compute) {}

  const GptShape& shape() const { return context.shape; }

  Slot& slot(int index) {
    require(index >= 0, "a negative slot");
    while (slots.size() <= static_cast<std::size_t>(index)) {
      slots.emplace_back();
      slots.back().blocks.resize(static_cast<std::size_t>(shape().layers));
    }
    return slots[static_cast<std::size_t>(index)];
  }

  std::size_t layer_of(int segment) const {
    require(segment >= 1 && segment <= shape().layers, "no such block");
    return static_cast<std::size_t>(segment - 1);
  }

  // i32 [B*S], tokens or targets.
  void check(const ConstTensorView& numbers) const {
    require(numbers && numbers.num_elements() == shape().tokens() && numbers.dtype == DType::kInt32,
            "a micro-batch has B*S tokens and as many targets, i32");
  }

  HeadViews head(ParameterViews views) const { return bind_parameters<HeadViews>(shape(), views); }

  DeviceTensor embed(const MicroBatch& batch, ParameterViews views) const {
    const auto p = bind_parameters<EmbeddingViews>(shape(), views);
    DeviceTensor y = context.activation({shape().tokens(), shape().hidden});
    const ConstTensorView tokens(batch.tokens.data, {shape().batch, shape().seq}, DType::kInt32);
    ops::embedding_forward(context.stream,
                           {.tokens = tokens, .token_table = p.token, .position_table = p.position, .y = y});
    return y;
  }

  void run(int segment, const MicroBatch& batch, ParameterViews views, Slot& s, bool keep) {
    check(batch.tokens);
    if (segment == 0) {
      s.residual.reset();  // of a token's logits
      s.residual = embed(batch, views);
      return;
    }
    BlockActivations& saved = s.blocks[layer_of(segment)];
    require(static_cast<bool>(s.residual), "a block's forward before the segment in front of it");
    s.residual = block_forward(context, bind_parameters<BlockViews>(shape(), views), std::move(s.residual),
                               keep ? &saved : nullptr);
  }

  GptContext context;
  std::vector<Slot> slots;
};

GptRunner::GptRunner(const ModelConfig& model, const LossConfig& loss, std::int64_t micro_batch_size, Device& device,
                     StreamView compute) {
  require(&compute.device() == &device, "the compute stream belongs to another device");
  state_ = std::make_unique<State>(model, loss, micro_batch_size, compute);
}

GptRunner::~GptRunner() = default;

void GptRunner::forward(int segment, const MicroBatch& batch, ParameterViews parameters, int slot) {
  state_->run(segment, batch, parameters, state_->slot(slot), true);
}

LossSum GptRunner::head_loss(const MicroBatch& batch, ParameterViews parameters, ParameterViews gradients,
                             bool accumulate, float gradient_scale, int slot) {
  Slot& s = state_->slot(slot);
  state_->check(batch.targets);
  require(static_cast<bool>(s.residual), "the head before the last block");
  return head_loss_and_gradient(state_->context, batch, state_->head(parameters), state_->head(gradients), accumulate,
                                gradient_scale, std::move(s.residual), s.gradient);
}

void GptRunner::backward(int segment, const MicroBatch& batch, ParameterViews parameters, ParameterViews gradients,
                         bool accumulate, int slot) {
  Slot& s = state_->slot(slot);
  const GptContext& c = state_->context;
  state_->check(batch.tokens);
  require(static_cast<bool>(s.gradient), "a backward before the head's");
  if (segment == 0) {
    const auto g = bind_parameters<EmbeddingViews>(c.shape, gradients);
    const ConstTensorView tokens(batch.tokens.data, {c.shape.batch, c.shape.seq}, DType::kInt32);
    ops::embedding_backward(c.stream, {.tokens = tokens,
                                       .dy = s.gradient,
                                       .dtoken_table = g.token,
                                       .dposition_table = g.position,
                                       .accumulate = accumulate});
    s.gradient.reset();
    return;
  }
  BlockActivations& saved = s.blocks[state_->layer_of(segment)];
  require(static_cast<bool>(saved.input), "a block's backward without its forward");
  block_backward(c, bind_parameters<BlockViews>(c.shape, parameters), bind_parameters<BlockViews>(c.shape, gradients),
                 saved, s.gradient, accumulate);
}

void GptRunner::forward_only(int segment, const MicroBatch& batch, ParameterViews parameters, int slot) {
  state_->run(segment, batch, parameters, state_->slot(slot), false);
}

LossSum GptRunner::evaluate_head(const MicroBatch& batch, ParameterViews parameters, LossKind kind, int slot) {
  Slot& s = state_->slot(slot);
  state_->check(batch.targets);
  require(static_cast<bool>(s.residual), "the head before the last block");
  return head_loss_only(state_->context, batch, state_->head(parameters), std::move(s.residual), kind);
}

void GptRunner::logits(std::int64_t row, ParameterViews parameters, std::span<float> out, int slot) {
  Slot& s = state_->slot(slot);
  require(static_cast<bool>(s.residual), "logits before the last block");
  head_logits(state_->context, state_->head(parameters), s.residual, row, out);
}

void GptRunner::reset() {
  state_->slots.clear();
}

}  // namespace tessera
