// The job as plain data: what a YAML file says, with defaults filled in. Names and sections are those of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// A key whose value is a number or the word `auto`: nullopt is auto.
using AutoInt = std::optional<std::int64_t>;

struct RunConfig {
  std::string name = "run";  // default: the file's stem
  std::uint64_t seed = 0;
  std::optional<std::int64_t> steps;  // one of steps and epochs is required; the first reached ends the run
  std::optional<std::int64_t> epochs;
  std::int64_t log_every = 1;
  std::int64_t hash_every = 0;        // 0: never
  std::int64_t evaluate_every = 0;    // 0: never
  std::int64_t evaluate_batches = 0;  // global batches per evaluation; 0: the whole validation set
  std::int64_t sample_every = 0;      // 0: never; otherwise also after the last step
  std::string on_nonfinite = "skip";  // skip | stop
  bool overfit_one_batch = false;     // every step trains on the first global batch
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

struct MeshConfig {
  AutoInt dp;
  std::int64_t pp = 1;
  std::int64_t tp = 1;
  std::string placement = "auto";  // auto | canonical
  std::string topology = "live";   // live | FILE.xml | hwloc synthetic string
  friend bool operator==(const MeshConfig&, const MeshConfig&) = default;
};

struct ModelConfig {
  std::int64_t num_layers = 0, num_heads = 0, hidden_size = 0, seq_len = 0, vocab_size = 0;  // required

  std::optional<std::int64_t> num_kv_heads;       // default num_heads
  std::optional<std::int64_t> head_dim;           // default hidden_size / num_heads
  std::optional<std::int64_t> intermediate_size;  // default 4 · hidden_size
  std::string norm = "layernorm";                 // layernorm | rmsnorm
  double norm_eps = 1e-5;
  std::string activation = "gelu_tanh";  // gelu | gelu_tanh | relu | silu | swiglu | geglu
  std::string positions = "learned";     // learned | rope
  double rope_theta = 10000.0;
  std::string rope_scaling = "none";  // none | linear | llama3
  double rope_factor = 1.0;           // of linear and llama3
  double rope_low_freq_factor = 1.0;  // of llama3, as the next two
  double rope_high_freq_factor = 4.0;
  std::int64_t rope_original_seq_len = 8192;
  bool bias = true;
  bool tie_word_embeddings = true;
  double dropout = 0.0;
  double init_std = 0.02;

  std::int64_t kv_heads() const { return num_kv_heads.value_or(num_heads); }
  std::int64_t head_size() const { return head_dim.value_or(num_heads > 0 ? hidden_size / num_heads : 0); }
  std::int64_t feed_forward_size() const { return intermediate_size.value_or(4 * hidden_size); }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

struct DataSource {
  std::string path;  // a glob
  double weight = 1.0;
  friend bool operator==(const DataSource&, const DataSource&) = default;
};

struct DataConfig {
  std::vector<DataSource> train;
  std::vector<std::string> validation;
  std::string tokenizer;  // "", "bytes", or a path: *.model, tokenizer.json
  bool shuffle = true;
  std::string document_separator;  // refused until a feature uses it at train time; data prepare has its own flag
  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

struct BatchConfig {
  std::int64_t global_batch_size = 0;  // sequences per step over all ranks
  std::int64_t micro_batch_size = 0;   // sequences per micro-batch
  friend bool operator==(const BatchConfig&, const BatchConfig&) = default;
};

struct PrecisionConfig {
  std::string compute = "fp32";  // fp32 | bf16 | fp16
  std::string reduce = "fp32";   // fp32 | bf16
  std::string loss_scale = "dynamic";
  friend bool operator==(const PrecisionConfig&, const PrecisionConfig&) = default;
};

struct FsdpConfig {
  std::string strategy = "full_shard";             // full_shard | shard_grad_op | hybrid_shard | no_shard
  std::string shard_size = "host";                 // host | N
  std::string wrap = "block";                      // block | root | N blocks per unit
  std::string backward_prefetch = "backward_pre";  // backward_pre | backward_post | none
  std::int64_t forward_prefetch_depth = 1;
  std::int64_t max_inflight_all_gathers = 2;
  std::string reshard_after_forward = "auto";  // auto | true | false
  std::string reduce = "once";                 // once | every_micro_batch
  friend bool operator==(const FsdpConfig&, const FsdpConfig&) = default;
};

struct PipelineConfig {
  std::string schedule = "1f1b";
  std::int64_t virtual_stages = 1;
  friend bool operator==(const PipelineConfig&, const PipelineConfig&) = default;
};

// Parameters whose name matches take other values.
struct OptimizerGroup {
  std::string match;  // regular expression (RE2) on the parameter's name
  std::optional<double> learning_rate, weight_decay;
  bool frozen = false;  // never updated
  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double learning_rate = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  double clip_norm = 0.0;  // 0: off
  std::vector<OptimizerGroup> groups;
  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};

struct ScheduleConfig {
  std::string name = "constant";  // constant | linear | cosine | step | polynomial | exponential | rsqrt | wsd
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> decay_steps;  // default steps - warmup_steps
  double min_learning_rate = 0.0;
  double power = 1.0;
  double gamma = 0.1;
  std::int64_t step_size = 0;
  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

struct LossConfig {
  double label_smoothing = 0.0;
  double z_loss = 0.0;
  std::int64_t ignore_index = -100;
  friend bool operator==(const LossConfig&, const LossConfig&) = default;
};

struct CheckpointConfig {
  std::int64_t every = 0;
  std::int64_t keep_latest = 0;
  std::int64_t keep_every = 0;
  bool asynchronous = true;
  std::string resume = "auto";
  std::string init_from;
  friend bool operator==(const CheckpointConfig&, const CheckpointConfig&) = default;
};

struct CollectivesConfig {
  std::string backend = "auto";        // auto | shm | mpi | nccl
  std::string fingerprint = "strict";  // off | log | step | strict
  bool program_check = true;
  double timeout_seconds = 600;
  friend bool operator==(const CollectivesConfig&, const CollectivesConfig&) = default;
};

struct ReproducibilityConfig {
  AutoInt lanes;
  std::int64_t tp_splits = 1;
  bool deterministic = false;
  friend bool operator==(const ReproducibilityConfig&, const ReproducibilityConfig&) = default;
};

struct DeviceConfig {
  std::string kind = "auto";  // auto | cpu | cuda
  AutoInt threads;
  std::string bind = "auto";  // auto | none
  std::string memory_limit;   // bytes with an optional KiB, MiB, GiB; "" none
  friend bool operator==(const DeviceConfig&, const DeviceConfig&) = default;
};

// Steps by number, both ends included.
struct StepRange {
  std::int64_t first = 0, last = 0;
  friend bool operator==(const StepRange&, const StepRange&) = default;
};

struct TraceConfig {
  std::optional<StepRange> steps;  // updates that are attempted, from 1
  friend bool operator==(const TraceConfig&, const TraceConfig&) = default;
};

// A deliberate fault of one rank; what each takes: chaos_faults.h.
struct ChaosFault {
  std::int64_t rank = 0;  // world rank
  std::int64_t step = 0;  // the update that is attempted, from 1
  std::string fault;
  std::string op;                 // all_gather | reduce_scatter | all_reduce | broadcast; "": the first call that fits
  std::optional<double> seconds;  // of hang, slow, slow_teardown; a hang without it lasts for ever
  friend bool operator==(const ChaosFault&, const ChaosFault&) = default;
};

struct JobConfig {
  std::string source;  // the file it came from, for messages
  RunConfig run;
  MeshConfig mesh;
  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  PrecisionConfig precision;
  FsdpConfig fsdp;
  PipelineConfig pipeline;
  std::string recompute = "none";
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  LossConfig loss;
  CheckpointConfig checkpoint;
  CollectivesConfig collectives;
  ReproducibilityConfig reproducibility;
  DeviceConfig device;
  TraceConfig trace;
  std::vector<ChaosFault> chaos;
  friend bool operator==(const JobConfig&, const JobConfig&) = default;
};

}  // namespace tessera
