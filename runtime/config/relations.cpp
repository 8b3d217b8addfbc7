#include "runtime/config/relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/config/scalar.h"

namespace tessera::config {
namespace {

using Relations = std::vector<Relation>;

void check_run(const JobConfig& job, Relations& broken) {
  if (!job.run.steps && !job.run.epochs) {
    broken.push_back({{"run.steps", "run.epochs", "run"}, "missing, expected run.steps or run.epochs", ""});
  }
  if (job.run.evaluate_every > 0 && job.data.validation.empty()) {
    broken.push_back({{"run.evaluate_every", "data.validation"},
                      fmt::format("{} needs data.validation, which is not set", job.run.evaluate_every),
                      ""});
  }
  if (job.run.sample_every > 0 && job.data.tokenizer.empty()) {
    broken.push_back({{"run.sample_every", "data.tokenizer"},
                      fmt::format("{} needs data.tokenizer, which is not set", job.run.sample_every),
                      "data.tokenizer: bytes, a *.model file or a tokenizer.json"});
  }
}

void check_model(const ModelConfig& model, Relations& broken) {
  if (model.num_heads <= 0 || model.hidden_size <= 0) return;
  if (!model.head_dim && model.hidden_size % model.num_heads != 0) {
    broken.push_back({{"model.hidden_size", "model.num_heads", "model.head_dim"},
                      fmt::format("{} is not a multiple of num_heads {}", model.hidden_size, model.num_heads),
                      fmt::format("{}, or set model.head_dim", nearest_multiples(model.hidden_size, model.num_heads))});
    return;
  }
  if (model.kv_heads() > 0 && model.num_heads % model.kv_heads() != 0) {
    broken.push_back({{"model.num_kv_heads", "model.num_heads"},
                      fmt::format("{} does not divide num_heads {}", model.kv_heads(), model.num_heads),
                      ""});
  }
  if (model.positions == "rope" && model.head_size() % 2 != 0) {
    broken.push_back({{"model.head_dim", "model.hidden_size", "model.num_heads", "model.positions"},
                      fmt::format("{} is odd, but positions rope rotates pairs of features", model.head_size()),
                      ""});
  }
  if (model.rope_scaling != "none" && model.rope_factor == 1) {
    broken.push_back({{"model.rope_scaling", "model.rope_factor"},
                      fmt::format("{} with rope_factor 1 stretches nothing", model.rope_scaling),
                      "model.rope_factor: a number above 1"});
  }
  if (model.rope_scaling == "llama3" && model.rope_high_freq_factor <= model.rope_low_freq_factor) {
    broken.push_back({{"model.rope_high_freq_factor", "model.rope_low_freq_factor", "model.rope_scaling"},
                      fmt::format("{} is not above rope_low_freq_factor {}", model.rope_high_freq_factor,
                                  model.rope_low_freq_factor),
                      ""});
  }
}

// Sizes are added and multiplied in 64 bits later on: what comes near them is refused, with the keys whose product is the largest. No machine
// holds a tenth of it.
void check_sizes(const JobConfig& job, Relations& broken) {
  constexpr double most = 0x1p58;  // bytes, and multiply-adds of a segment: leaves room for sums of a few
  const ModelConfig& model = job.model;
  const auto of = [](std::int64_t value) { return static_cast<double>(value); };
  struct Product {
    double value;
    std::vector<std::string_view> keys;
    std::string factors, what;
  };
  const double heads = of(model.num_heads) + of(model.kv_heads());
  const double attention = 2 * heads * of(model.head_size()) * of(model.hidden_size);
  const double feed_forward = 3 * of(model.hidden_size) * of(model.feed_forward_size());
  const double tokens = of(job.batch.micro_batch_size) * of(model.seq_len), layers = of(model.num_layers);
  const double widest =
      2 * heads * of(model.head_size()) + 2 * of(model.feed_forward_size()) + 2 * of(model.hidden_size);
  constexpr double state = 16;  // bytes of a parameter with gradient and moments
  const std::string token_factors = fmt::format("{} × seq_len {}", job.batch.micro_batch_size, model.seq_len);
  const Product products[] = {
      {state * of(model.vocab_size) * of(model.hidden_size),
       {"model.vocab_size", "model.hidden_size"},
       fmt::format("{} × hidden_size {}", model.vocab_size, model.hidden_size),
       "bytes of parameters, gradients and moments"},
      {state * attention * layers,
       {"model.num_heads", "model.head_dim", "model.hidden_size", "model.num_layers"},
       fmt::format("{} × head_dim {} × hidden_size {} × num_layers {}", model.num_heads, model.head_size(),
                   model.hidden_size, model.num_layers),
       "bytes of parameters, gradients and moments"},
      {state * feed_forward * layers,
       {"model.hidden_size", "model.intermediate_size", "model.num_layers"},
       fmt::format("{} × intermediate_size {} × num_layers {}", model.hidden_size, model.feed_forward_size(),
                   model.num_layers),
       "bytes of parameters, gradients and moments"},
      {4 * tokens * widest * layers,
       {"batch.micro_batch_size", "model.seq_len", "model.hidden_size", "model.intermediate_size", "model.num_layers"},
       fmt::format("{} × num_layers {} of hidden_size {}, intermediate_size {}", token_factors, model.num_layers,
                   model.hidden_size, model.feed_forward_size()),
       "bytes of activations"},
      {2 * tokens *
           (attention + feed_forward + of(model.vocab_size) * of(model.hidden_size) +
            of(model.num_heads) * of(model.head_size()) * of(model.seq_len)),
       {"batch.micro_batch_size", "model.seq_len", "model.hidden_size", "model.intermediate_size", "model.vocab_size"},
       fmt::format("{} of hidden_size {}, intermediate_size {}, vocab_size {}", token_factors, model.hidden_size,
                   model.feed_forward_size(), model.vocab_size),
       "multiply-adds of a block or the head"},
  };
  const Product& largest = *std::max_element(std::begin(products), std::end(products),
                                             [](const Product& a, const Product& b) { return a.value < b.value; });
  if (largest.value <= most) return;
  broken.push_back(
      {largest.keys,
       fmt::format("{} make {:.2g} {}, expected at most {:.2g}", largest.factors, largest.value, largest.what, most),
       ""});
}

void check_batch(const JobConfig& job, Relations& broken) {
  const std::int64_t global = job.batch.global_batch_size, micro = job.batch.micro_batch_size;
  if (global <= 0 || micro <= 0) return;
  constexpr std::int64_t max_positions = 2147483647;  // rows of a micro-batch are counted in 32 bits
  if (job.model.seq_len > 0 && micro > max_positions / job.model.seq_len) {
    broken.push_back({{"batch.micro_batch_size", "model.seq_len"},
                      fmt::format("{} × seq_len {} is more than {} tokens", micro, job.model.seq_len, max_positions),
                      ""});
    return;
  }
  if (global % micro != 0) {
    broken.push_back({{"batch.global_batch_size", "batch.micro_batch_size"},
                      fmt::format("{} is not a multiple of micro_batch_size {}", global, micro),
                      nearest_multiples(global, micro)});
    return;
  }
  if (job.reproducibility.lanes) {
    const std::string mismatch = batch_mismatch(job, *job.reproducibility.lanes, "lanes");
    if (!mismatch.empty()) {
      broken.push_back({{"batch.global_batch_size", "batch.micro_batch_size", "reproducibility.lanes"},
                        mismatch,
                        nearest_multiples(global, *job.reproducibility.lanes * micro)});
    }
  } else if (job.mesh.dp) {
    const std::string mismatch = batch_mismatch(job, *job.mesh.dp, "dp");
    if (!mismatch.empty()) {
      broken.push_back({{"batch.global_batch_size", "batch.micro_batch_size", "mesh.dp"},
                        mismatch,
                        nearest_multiples(global, *job.mesh.dp * micro)});
    }
  }
}

void check_schedule(const JobConfig& job, Relations& broken) {
  const ScheduleConfig& schedule = job.schedule;
  if (job.run.steps && schedule.warmup_steps > *job.run.steps) {
    broken.push_back({{"schedule.warmup_steps", "run.steps"},
                      fmt::format("{} is more than run.steps {}", schedule.warmup_steps, *job.run.steps),
                      ""});
  }
  if (schedule.name == "constant") return;
  if (schedule.min_learning_rate > job.optimizer.learning_rate) {
    broken.push_back({{"schedule.min_learning_rate", "optimizer.learning_rate"},
                      fmt::format("{} is above optimizer.learning_rate {}", number_text(schedule.min_learning_rate),
                                  number_text(job.optimizer.learning_rate)),
                      ""});
  }
  if (!schedule.decay_steps && !job.run.steps && job.run.epochs) {
    broken.push_back({{"schedule.decay_steps", "schedule.name", "run.steps"},
                      fmt::format("missing, schedule {} needs it where run.steps is not set", schedule.name),
                      ""});
  }
}

void check_fsdp(const JobConfig& job, Relations& broken) {
  const FsdpConfig& fsdp = job.fsdp;
  const bool reshards = fsdp.strategy == "full_shard" || fsdp.strategy == "hybrid_shard";
  if (fsdp.reshard_after_forward == "true" && !reshards) {
    broken.push_back({{"fsdp.reshard_after_forward", "fsdp.strategy"},
                      fmt::format("true does not go with strategy {}", fsdp.strategy),
                      "auto, or fsdp.strategy: full_shard or hybrid_shard"});
  }
  for (std::size_t g = 0; g < job.optimizer.groups.size(); ++g) {
    const OptimizerGroup& group = job.optimizer.groups[g];
    if (!group.frozen || (!group.learning_rate && !group.weight_decay)) continue;
    broken.push_back({{"optimizer.groups"},
                      fmt::format("[{}] is frozen and has a learning_rate or weight_decay, expected one of both", g),
                      ""});
  }
}

void check_lanes(const JobConfig& job, Relations& broken) {
  if (!job.reproducibility.lanes || !job.mesh.dp) return;
  const LanesMismatch mismatch = lanes_mismatch(*job.reproducibility.lanes, *job.mesh.dp);
  if (!mismatch.message.empty())
    broken.push_back({{"reproducibility.lanes", "mesh.dp"}, mismatch.message, mismatch.hint});
}

}  // namespace

std::string nearest_multiples(std::int64_t value, std::int64_t product) {
  const std::int64_t below = value / product * product;
  return below == 0 ? fmt::format("{}", product) : fmt::format("{} or {}", below, below + product);
}

std::string batch_mismatch(const JobConfig& job, std::int64_t lanes, std::string_view lanes_name) {
  const std::int64_t global = job.batch.global_batch_size, micro = job.batch.micro_batch_size;
  if (global % (lanes * micro) == 0) return {};
  return fmt::format("{} is not a multiple of {} {} × micro_batch_size {} = {}", global, lanes_name, lanes, micro,
                     lanes * micro);
}

std::vector<std::int64_t> dp_values_of_lanes(std::int64_t lanes) {
  std::vector<std::int64_t> values{lanes};
  while (values.back() > 0 && values.back() % 2 == 0) values.push_back(values.back() / 2);
  std::reverse(values.begin(), values.end());
  return values;
}

LanesMismatch lanes_mismatch(std::int64_t lanes, std::int64_t dp) {
  const std::vector<std::int64_t> fitting = dp_values_of_lanes(lanes);
  if (std::find(fitting.begin(), fitting.end(), dp) != fitting.end()) return {};
  std::string hint = "dp values that fit:";
  for (const std::int64_t value : fitting) hint += fmt::format("{} {}", value == fitting.front() ? "" : ",", value);
  if (dp > lanes) return {fmt::format("{} is less than dp {}", lanes, dp), std::move(hint)};
  return {fmt::format("{} ÷ dp {} is not a power of two", lanes, dp), std::move(hint)};
}

std::vector<Relation> broken_relations(const JobConfig& job) {
  Relations broken;
  check_run(job, broken);
  check_model(job.model, broken);
  check_sizes(job, broken);
  check_batch(job, broken);
  check_schedule(job, broken);
  check_lanes(job, broken);
  check_fsdp(job, broken);
  return broken;
}

}  // namespace tessera::config
