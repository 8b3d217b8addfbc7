#include "runtime/train/sampler.h"

#include <algorithm>

#include "fsdp/schedule.h"

namespace tessera {

struct Sampler::Window {
  std::int64_t length;
  GptRunner runner;
  Executor executor;
  StepProgram program;

  Window(std::int64_t size, const ModelConfig& model_config, const LossConfig& loss, ShardedModel& model,
         CommunicatorSet& communicators, Device& device, ExecutorStreams streams, const ScheduleOptions& schedule,
         ProgramCheck* check)
      : length(size),
        runner(model_config, loss, 1, device, streams.compute),
        executor(model, nullptr, runner, communicators, device, streams, Executor::Options{.check = check}),
        program(build_token_program(model.model(), model.unit_specs(), schedule)) {}
};

Sampler::Sampler(const JobConfig& config, ShardedModel& model, CommunicatorSet& communicators, Device& device,
                 ExecutorStreams streams, const ScheduleOptions& schedule, ProgramCheck* check)
    : config_(config),
      model_(model),
      communicators_(communicators),
      device_(device),
      streams_(streams),
      schedule_(schedule),
      check_(check) {
  schedule_.num_micro_batches = 1;
  schedule_.micro_batches_per_lane = 1;
  schedule_.title = "token program";
}

Sampler::~Sampler() = default;

// Contexts are cut to powers of two, so that short texts do not pay for seq_len; what lies behind the last token is causally invisible. A learned
// table of positions is gathered whole, so its contexts are whole too.
Sampler::Window& Sampler::window_for(std::int64_t length) {
  std::int64_t size = config_.model.positions == "learned" ? config_.model.seq_len : 16;
  while (size < length) size *= 2;
  size = std::min(size, config_.model.seq_len);
  for (const auto& window : windows_) {
    if (window->length == size) return *window;
  }
  ModelConfig model_config = config_.model;
  model_config.seq_len = size;
  windows_.push_back(std::make_unique<Window>(size, model_config, config_.loss, model_, communicators_, device_,
                                              streams_, schedule_, check_));
  return *windows_.back();
}

std::vector<std::uint32_t> Sampler::generate(std::vector<std::uint32_t> text, const SamplerOptions& options,
                                             std::int64_t step) {
  const std::size_t prompt_size = text.size();
  std::vector<float> logits(static_cast<std::size_t>(config_.model.vocab_size));
  for (std::int64_t n = 0; n < options.num_tokens; ++n) {
    const auto context = std::min<std::int64_t>(static_cast<std::int64_t>(text.size()), config_.model.seq_len);
    Window& window = window_for(context);
    StepBatch batch;
    batch.micro_batch_size = 1;
    batch.seq_len = window.length;
    batch.tokens.assign(static_cast<std::size_t>(window.length), 0);
    batch.targets.assign(static_cast<std::size_t>(window.length), static_cast<std::int32_t>(config_.loss.ignore_index));
    std::copy(text.end() - context, text.end(), batch.tokens.begin());
    window.executor.logits(window.program, {.step = step, .batch = &batch, .logits_row = context - 1}, logits);
    text.push_back(
        static_cast<std::uint32_t>(sample_token(logits, options.sampling, static_cast<std::int64_t>(text.size()))));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt_size), text.end()};
}

}  // namespace tessera
