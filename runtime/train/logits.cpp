#include "runtime/train/logits.h"

#include <fmt/format.h>

#include "fsdp/units.h"
#include "models/gpt.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/load_weights.h"
#include "runtime/train/sampler.h"
#include "runtime/train/saved_job.h"

namespace tessera {
namespace {

void check(const ModelConfig& model, std::span<const std::int32_t> tokens) {
  if (tokens.empty() || static_cast<std::int64_t>(tokens.size()) > model.seq_len)
    throw ConfigError(fmt::format("{} tokens, expected 1 to seq_len {}", tokens.size(), model.seq_len));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= model.vocab_size)
      throw ConfigError(fmt::format("token {}, expected 0 to {}", token, model.vocab_size - 1));
}

}  // namespace

std::vector<float> checkpoint_logits(FileSystem& files, const std::string& folder,
                                     std::span<const std::int32_t> tokens) {
  const JobConfig job = saved_job(read_manifest(files, folder), folder);
  check(job.model, tokens);
  const ModelConfig config = sampler_model(job.model, static_cast<std::int64_t>(tokens.size()));

  CpuDevice device(CpuDeviceOptions{.num_threads = 1});
  const Stream compute = device.create_stream("compute", StreamMode::kCompute);
  const ModelSpec spec = describe_gpt(config, 1);
  const std::vector<UnitSpec> units = make_units(spec, "root");
  ShardedModel model(spec, units, {}, device.allocator(), compute.view());
  load_weights(files, folder, config, model, compute.view());

  GptRunner runner(config, job.loss, 1, device, compute.view());
  // What follows the text is causally invisible.
  std::vector<std::int32_t> inputs(tokens.begin(), tokens.end());
  inputs.resize(static_cast<std::size_t>(config.seq_len));
  const MicroBatch batch{.tokens = ConstTensorView(inputs.data(), {config.seq_len}, DType::kInt32)};
  const int head = static_cast<int>(spec.segments.size()) - 1;
  for (int segment = 0; segment < head; ++segment) runner.forward_only(segment, batch, model.parameter_views(segment));
  const auto vocabulary = static_cast<std::size_t>(config.vocab_size);
  std::vector<float> logits(tokens.size() * vocabulary);
  for (std::size_t row = 0; row < tokens.size(); ++row)
    runner.logits(static_cast<std::int64_t>(row), model.parameter_views(head),
                  std::span(logits).subspan(row * vocabulary, vocabulary));
  return logits;
}

}  // namespace tessera
