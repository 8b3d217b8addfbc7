#include "runtime/train/sampler.h"

#include <algorithm>
#include <optional>

#include "fsdp/schedule.h"

namespace tessera {

namespace {

// What runs contexts of one length.
struct Window {
  std::int64_t length;
  GptRunner runner;
  Executor executor;

  Window(const ModelConfig& model_config, const LossConfig& loss, ShardedModel& model, CommunicatorSet& communicators,
         Device& device, ExecutorStreams streams, ProgramCheck* check)
      : length(model_config.seq_len),
        runner(model_config, loss, 1, device, streams.compute),
        executor(model, nullptr, runner, communicators, device, streams, Executor::Options{.check = check}) {}
};

}  // namespace

Sampler::Sampler(const JobConfig& config, ShardedModel& model, CommunicatorSet& communicators, Device& device,
                 ExecutorStreams streams, const ScheduleOptions& schedule, ProgramCheck* check)
    : config_(config),
      model_(model),
      communicators_(communicators),
      device_(device),
      streams_(streams),
      program_(build_token_program(model.model(), model.unit_specs(), token_schedule(schedule))),
      check_(check) {}

ModelConfig sampler_model(const ModelConfig& model, std::int64_t length) {
  std::int64_t size = model.positions == "learned" ? model.seq_len : 16;
  while (size < length) size *= 2;
  ModelConfig cut = model;
  cut.seq_len = std::min(size, model.seq_len);
  return cut;
}

ScheduleOptions token_schedule(ScheduleOptions training) {
  training.num_micro_batches = 1;
  training.micro_batches_per_lane = 1;
  training.title = "token program";
  return training;
}

std::vector<std::uint32_t> Sampler::generate(std::vector<std::uint32_t> text, const SamplerOptions& options,
                                             std::int64_t step) {
  const std::size_t prompt_size = text.size();
  std::optional<Window> window;
  std::vector<float> logits(static_cast<std::size_t>(config_.model.vocab_size));
  for (std::int64_t n = 0; n < options.num_tokens; ++n) {
    const auto context = std::min<std::int64_t>(static_cast<std::int64_t>(text.size()), config_.model.seq_len);
    if (const ModelConfig model = sampler_model(config_.model, context); !window || window->length != model.seq_len) {
      window.reset();  // one at a time holds memory
      window.emplace(model, config_.loss, model_, communicators_, device_, streams_, check_);
    }
    StepBatch batch;
    batch.micro_batch_size = 1;
    batch.seq_len = window->length;
    batch.tokens.assign(static_cast<std::size_t>(window->length), 0);
    batch.targets.assign(static_cast<std::size_t>(window->length),
                         static_cast<std::int32_t>(config_.loss.ignore_index));
    std::copy(text.end() - context, text.end(), batch.tokens.begin());
    window->executor.logits(program_, {.step = step, .batch = &batch, .logits_row = context - 1}, logits);
    const std::span<const float> choices =
        options.num_choices > 0 ? std::span(logits).first(static_cast<std::size_t>(options.num_choices)) : logits;
    text.push_back(
        static_cast<std::uint32_t>(sample_token(choices, options.sampling, static_cast<std::int64_t>(text.size()))));
    if (options.on_token) options.on_token(text.back());
    if (std::ranges::find(options.stop_tokens, text.back()) != options.stop_tokens.end()) break;
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt_size), text.end()};
}

}  // namespace tessera
