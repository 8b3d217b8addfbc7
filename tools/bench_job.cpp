#include "tools/bench_job.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"
#include "runtime/train/token_data.h"
#include "runtime/train/token_writer.h"

namespace fs = std::filesystem;

namespace tessera {

JobConfig gpt2_124m() {
  JobConfig config;
  config.run.name = "bench";
  config.model.num_layers = 12;
  config.model.num_heads = 12;
  config.model.hidden_size = 768;
  config.model.seq_len = 256;
  config.model.vocab_size = 50304;
  config.batch.global_batch_size = 4;
  config.batch.micro_batch_size = 4;
  config.optimizer.learning_rate = 3e-4;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.clip_norm = 1.0;
  return config;
}

JobConfig tiny_model() {
  JobConfig config;
  config.run.name = "bench";
  config.model.num_layers = 2;
  config.model.num_heads = 4;
  config.model.hidden_size = 32;
  config.model.seq_len = 16;
  config.model.vocab_size = 64;
  config.batch.global_batch_size = 8;
  config.batch.micro_batch_size = 2;
  config.optimizer.learning_rate = 1e-3;
  config.reproducibility.lanes = 4;
  return config;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (fs::temp_directory_path() / "tessera-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    throw DeviceError("bench: no temporary directory can be made in " + fs::temp_directory_path().string());
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<float> random_values(std::int64_t n, std::uint64_t stream) {
  const CounterRng rng(1, RandomPurpose::kBench, stream);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rng.uniform(i)) - 0.5F;
  return values;
}

void write_random_tokens(const std::string& path, std::int64_t count, std::int64_t vocab_size) {
  const CounterRng rng(1, RandomPurpose::kBench, 3);
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::uint32_t>(rng.below(i, static_cast<std::uint64_t>(vocab_size)));
  write_token_file(path, tokens, vocab_size);
}

std::int64_t num_tokens_for(const JobConfig& config, std::int64_t steps) {
  return config.model.seq_len * config.batch.global_batch_size * steps + 1;
}

void prepare_job(JobConfig& config, const std::string& path, std::int64_t steps) {
  config.data.train = {{path, 1.0}};
  config.data.validation.clear();
  config.run.steps = steps;
  config.run.epochs.reset();
  config.run.log_every = 1;
  config.run.hash_every = config.run.evaluate_every = config.run.sample_every = 0;
  config.checkpoint.every = 0;
}

std::vector<double> step_seconds(const std::string& metrics_path, std::int64_t warmup) {
  std::ifstream file(metrics_path);
  std::vector<double> seconds;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line);
    if (!event.contains("kind") && event.at("step").get<std::int64_t>() > warmup)
      seconds.push_back(event.at("step_seconds").get<double>());
  }
  return seconds;
}

}  // namespace tessera
