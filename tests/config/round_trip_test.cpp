// A config that is written loads back to itself; every job file of the repository loads.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

JobConfig load_text(const std::string& text, const std::string& name) {
  ConfigResult result = check_config_text(text, name);
  EXPECT_TRUE(result.problems.empty()) << result.problems[0].line_text() << "\n" << text;
  return result.config;
}

void expect_round_trip(const JobConfig& job) {
  EXPECT_EQ(load_text(to_yaml(job), job.source), job) << to_yaml(job);
  EXPECT_EQ(load_text(to_json(job), job.source), job) << to_json(job);
}

std::vector<std::string> job_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/configs")) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(JobFiles, AllLoadAndRoundTrip) {
  const std::vector<std::string> files = job_files();
  ASSERT_GE(files.size(), 4u);
  for (const std::string& file : files) {
    const ConfigResult result = check_config(file);
    EXPECT_TRUE(result.problems.empty()) << result.problems[0].line_text();
    expect_round_trip(result.config);
  }
}

TEST(JobFiles, ResolveOnTheRanksTheyPromise) {
  const std::string folder = std::string(TESSERA_SOURCE_DIR) + "/configs/";
  for (const char* name : {"tiny.yaml", "tiny-llama.yaml"}) {
    const JobConfig job = load_config(folder + name);
    for (const std::int64_t ranks : {1, 2, 4}) EXPECT_EQ(resolve(job, ranks).lanes, 4);
  }
  EXPECT_EQ(load_config(folder + "gpt2-124m.yaml").batch.global_batch_size * 1024, 524288);
}

TEST(RoundTrip, KeepsEveryAvailableKey) {
  expect_round_trip(load_text(
      "trace: {steps: [2, 1000000000000]}\n"
      "run: {name: \"a b: #c\", seed: 18446744073709551615, steps: 10, epochs: 3, log_every: 2, hash_every: 1, "
      "evaluate_every: 5, evaluate_batches: 2,\n"
      "      sample_every: 4, on_nonfinite: stop, overfit_one_batch: true}\n"
      "mesh: {dp: 2, pp: 1, tp: 1, placement: canonical, topology: \"numa:2 core:4 pu:1\"}\n"
      "model: {num_layers: 2, num_heads: 4, num_kv_heads: 2, head_dim: 10, hidden_size: 33, intermediate_size: 77, "
      "seq_len: 16, vocab_size: 67,\n"
      "        norm: rmsnorm, norm_eps: 1e-6, activation: geglu, positions: rope, rope_theta: 500000, rope_scaling: "
      "llama3, "
      "rope_factor: 8, rope_low_freq_factor: 0.5, rope_high_freq_factor: 3, rope_original_seq_len: 12, bias: false, "
      "tie_word_embeddings: false,\n"
      "        dropout: 0, init_std: 0.1}\n"
      "data: {train: [\"*.bin\", {path: \"say \\\"hi\\\"\\\\\\t\", weight: 0.1}], validation: [\"null\", \"1e3\", "
      "\"-x\", \"é\"], tokenizer: bytes, "
      "shuffle: false}\n"
      "batch: {global_batch_size: 8, micro_batch_size: 2}\n"
      "precision: {compute: fp32, reduce: fp32}\n"
      "fsdp: {strategy: full_shard, wrap: 2, backward_prefetch: none, forward_prefetch_depth: 0, "
      "max_inflight_all_gathers: 1, "
      "reshard_after_forward: false, reduce: once}\n"
      "recompute: none\n"
      "optimizer: {name: adamw, learning_rate: 6e-4, betas: [0.9, 0.95], eps: 1e-10, weight_decay: 0.1, clip_norm: 1,\n"
      "            groups: [{match: \"bias|norm\", weight_decay: 0}, {match: \"^embedding\\\\.\", learning_rate: "
      "1e-4}, {match: head, frozen: true}]}\n"
      "schedule: {name: cosine, warmup_steps: 2, decay_steps: 7, min_learning_rate: 6e-5}\n"
      "loss: {label_smoothing: 0.1, z_loss: 1e-4, ignore_index: -1}\n"
      "checkpoint: {every: 5, keep_latest: 2, keep_every: 10, asynchronous: false, resume: runs/a, init_from: b/c}\n"
      "collectives: {backend: shm, timeout_seconds: 12.5}\n"
      "reproducibility: {lanes: 4, tp_splits: 1}\n"
      "device: {kind: cpu, threads: 3, bind: none, memory_limit: 1.5 GiB}\n",
      "job.yaml"));
}

TEST(RoundTrip, KeepsDoublesToTheLastBit) {
  JobConfig job = load_text(std::string(kModelT), "job.yaml");
  for (const double rate : {0.1, 1.0 / 3.0, 0.0006, 1e-300, 123456.78901234567, 0.30000000000000004}) {
    job.optimizer.learning_rate = rate;
    expect_round_trip(job);
  }
  EXPECT_NE(to_yaml(job).find("learning_rate: 0.30000000000000004\n"), std::string::npos);
}

TEST(RoundTrip, WritesTheShortestFormAndWhatAbsentKeysAmountTo) {
  const std::string yaml = to_yaml(load_text(model_t_with("1e-3", "6e-4"), "job.yaml"));
  EXPECT_NE(yaml.find("  learning_rate: 0.0006\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("  # head_dim: 8 (not set: hidden_size ÷ num_heads)\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("  dp: auto\n"), std::string::npos) << yaml;
  EXPECT_EQ(yaml.find("init_from"), std::string::npos) << yaml;
}

TEST(RoundTrip, JsonHasTheSectionsOfTheFile) {
  const auto json = nlohmann::json::parse(to_json(load_text(std::string(kModelT), "job.yaml")));
  EXPECT_EQ(json["model"]["hidden_size"], 32);
  EXPECT_EQ(json["optimizer"]["learning_rate"], 0.001);
  EXPECT_EQ(json["mesh"]["dp"], "auto");
  EXPECT_EQ(json["data"]["train"][0], "data/t.bin");
  EXPECT_EQ(json["run"]["overfit_one_batch"], false);
  EXPECT_EQ(json["recompute"], "none");
}

}  // namespace
}  // namespace tessera::testing
