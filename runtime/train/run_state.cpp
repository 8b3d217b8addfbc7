#include "runtime/train/run_state.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/hash.h"
#include "runtime/base/rng.h"
#include "runtime/config/load.h"
#include "runtime/train/schedule.h"

namespace tessera {

JobConfig resolved_config(const JobConfig& config, std::int64_t lanes) {
  JobConfig resolved = config;
  resolved.reproducibility.lanes = lanes;
  return resolved;
}

Fields model_fields(const ModelConfig& model) {
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const auto number = [](auto value) { return fmt::format("{}", value); };
  Fields fields = {{"num_layers", number(model.num_layers)},
                   {"num_heads", number(model.num_heads)},
                   {"num_kv_heads", number(model.kv_heads())},
                   {"head_dim", number(model.head_size())},
                   {"hidden_size", number(model.hidden_size)},
                   {"intermediate_size", number(model.feed_forward_size())},
                   {"seq_len", number(model.seq_len)},
                   {"vocab_size", number(model.vocab_size)},
                   {"norm", model.norm},
                   {"norm_eps", number(model.norm_eps)},
                   {"activation", model.activation},
                   {"positions", model.positions},
                   {"bias", flag(model.bias)},
                   {"tie_word_embeddings", flag(model.tie_word_embeddings)}};
  if (model.positions == "rope") fields.emplace_back("rope_theta", number(model.rope_theta));
  if (model.positions == "rope" && model.rope_scaling != "none") {
    fields.emplace_back("rope_scaling", model.rope_scaling);
    fields.emplace_back("rope_factor", number(model.rope_factor));
  }
  if (model.positions == "rope" && model.rope_scaling == "llama3") {
    fields.emplace_back("rope_low_freq_factor", number(model.rope_low_freq_factor));
    fields.emplace_back("rope_high_freq_factor", number(model.rope_high_freq_factor));
    fields.emplace_back("rope_original_seq_len", number(model.rope_original_seq_len));
  }
  return fields;
}

Fields numerics_fields(const NumericsRecord& numerics) {
  Fields fields;
  const nlohmann::ordered_json json = nlohmann::ordered_json::parse(numerics.json());
  for (const auto& [name, value] : json.items())
    fields.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  return fields;
}

std::int64_t next_batch(const JobConfig& config, const BatchLoader& loader, const Progress& at) {
  return config.run.overfit_one_batch ? loader.first_batch() : at.batch;
}

ResumeCertificate certificate_of_next_step(const RunFacts& facts, const Progress& at) {
  const std::int64_t update = at.step + 1;
  // The numbers that a step draws: of a stream that every step has for itself.
  const CounterRng rng(facts.config.run.seed, RandomPurpose::kDropout, static_cast<std::uint64_t>(update));
  return {.batch_digest = facts.loader.global_digest(next_batch(facts.config, facts.loader, at)),
          .learning_rate = learning_rate(facts.schedule, facts.config.optimizer.learning_rate, update, update),
          .rng_digest = mix64(rng.bits64(0)) ^ rng.bits64(1),
          .loss = std::numeric_limits<double>::quiet_NaN()};
}

TrainingState training_state(const RunFacts& facts, const Progress& at) {
  const JobConfig& config = facts.config;
  const DataPart& data = facts.loader.part_of(at.batch);
  return {.config = to_yaml(resolved_config(config, facts.numerics.lanes)),
          .mesh = {.dp = facts.mesh.dp,
                   .pp = facts.mesh.pp,
                   .tp = facts.mesh.tp,
                   .strategy = config.fsdp.strategy,
                   .wrap = config.fsdp.wrap},
          .data = {.next_batch = at.batch,
                   .epoch = data.order.epoch_of(at.batch),
                   .tokens_seen = at.batch * config.batch.global_batch_size * config.model.seq_len,
                   .order_digest = data.order_digest,
                   .first_batch = data.order.first_batch(),
                   .first_epoch = data.order.first_epoch(),
                   .files = data.dataset.file_list()},
          .schedule = {.updates = at.step, .decay_steps = facts.schedule.decay_steps.value_or(0)},
          .loss_scaler = {.skipped_steps = at.skipped},
          .rng = {.seed = config.run.seed},
          .numerics = numerics_fields(facts.numerics),
          .certificate = certificate_of_next_step(facts, at)};
}

Progress progress_of(const TrainingState& state) {
  return {.step = state.schedule.updates, .batch = state.data.next_batch, .skipped = state.loss_scaler.skipped_steps};
}

}  // namespace tessera
