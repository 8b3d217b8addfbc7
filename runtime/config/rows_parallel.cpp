// Rows of precision, fsdp, pipeline and recompute.
#include "runtime/config/key_rows.h"

namespace tessera::config {
std::vector<KeyRow> precision_rows() {
  return {
      {.path = "precision.compute",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(precision.compute),
       .words = {"fp32", "bf16", "fp16"},
       .meaning = "Element type of products and activations.",
       .foreign = {{"dtype", "nanoGPT"},
                   {"torch_dtype", "Hugging Face"},
                   {"bf16", "Hugging Face, Megatron"},
                   {"fp16", "Hugging Face, Megatron"},
                   {"mixed_precision", "Hugging Face"},
                   {"mixed_precision_param", "torchtitan"}},
       .words_now = {"fp32"}},
      {.path = "precision.reduce",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(precision.reduce),
       .words = {"fp32", "bf16"},
       .meaning = "Element type in which gradients travel; bf16 gives up bits that do not depend on the layout.",
       .foreign = {{"mixed_precision_reduce", "torchtitan"},
                   {"accumulate_allreduce_grads_in_fp32", "Megatron"},
                   {"reduce_dtype", "PyTorch"}},
       .words_now = {"fp32"}},
      {.path = "precision.loss_scale",
       .kind = KeyKind::kAnything,
       .meaning = "Scales the loss so that fp16 gradients do not vanish.",
       .foreign = {{"initial_loss_scale", "Megatron"}, {"grad_scaler", "PyTorch"}},
       .later = true},
  };
}

namespace {

bool gathers(const JobConfig& job) {
  return job.fsdp.strategy != "no_shard";
}

}  // namespace

std::vector<KeyRow> fsdp_rows() {
  return {
      {.path = "fsdp.strategy",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(fsdp.strategy),
       .words = {"full_shard", "shard_grad_op", "hybrid_shard", "no_shard"},
       .meaning = "What each rank keeps: full_shard a part of parameters, gradients and moments; shard_grad_op the "
                  "same between steps, "
                  "but all parameters from a step's first forward to its last backward; hybrid_shard as full_shard "
                  "within shard_size "
                  "neighbours, whose groups hold copies; no_shard everything.",
       .foreign = {{"sharding_strategy", "PyTorch"},
                   {"fsdp_sharding_strategy", "Hugging Face"},
                   {"zero_stage", "DeepSpeed"},
                   {"data_parallel_sharding_strategy", "Megatron"}}},
      {.path = "fsdp.shard_size",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(fsdp.shard_size),
       .range = {1, 1000000},
       .words = {"host"},
       .meaning = "Neighbours of dp over which hybrid_shard splits: those of a host, or so many. Divides dp; a power "
                  "of two, or dp itself.",
       .unit = "ranks",
       .foreign = {{"num_distributed_optimizer_instances", "Megatron"}},
       .decider = "fsdp.strategy",
       .needs = "hybrid_shard",
       .applies = [](const JobConfig& job) { return job.fsdp.strategy == "hybrid_shard"; }},
      {.path = "fsdp.wrap",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(fsdp.wrap),
       .range = {1, 10000},
       .words = {"block", "root"},
       .meaning = "What is gathered together: each block, so many blocks, or the whole model at once (root).",
       .unit = "blocks",
       .foreign = {{"fsdp_auto_wrap_policy", "Hugging Face"},
                   {"auto_wrap_policy", "PyTorch"},
                   {"fsdp_transformer_layer_cls_to_wrap", "Hugging Face"}}},
      {.path = "fsdp.backward_prefetch",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(fsdp.backward_prefetch),
       .words = {"backward_pre", "backward_post", "none"},
       .meaning =
           "When backward gathers the next unit: before the current one computes, after it, or only when needed.",
       .foreign = {{"fsdp_backward_prefetch", "Hugging Face"}},
       .decider = "fsdp.strategy",
       .needs = "full_shard",
       .applies = gathers},
      {.path = "fsdp.forward_prefetch_depth",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(fsdp.forward_prefetch_depth),
       .range = {0, 10000},
       .meaning = "Units that forward gathers ahead of the one that computes.",
       .unit = "units",
       .foreign = {{"forward_prefetch", "PyTorch"}, {"fsdp_forward_prefetch", "Hugging Face"}},
       .decider = "fsdp.strategy",
       .needs = "full_shard",
       .applies = gathers},
      {.path = "fsdp.max_inflight_all_gathers",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(fsdp.max_inflight_all_gathers),
       .range = {1, 10000},
       .meaning = "All-gathers that may be issued and not yet used: less memory, less overlap.",
       .unit = "all-gathers",
       .foreign = {{"limit_all_gathers", "PyTorch"}},
       .decider = "fsdp.strategy",
       .needs = "full_shard",
       .applies = gathers},
      {.path = "fsdp.reshard_after_forward",
       .kind = KeyKind::kBool,
       .field = TESSERA_JOB(fsdp.reshard_after_forward),
       .words = {"auto"},
       .meaning = "Drops a block's full parameters after its forward and gathers them again for backward. auto: true "
                  "for full_shard and "
                  "hybrid_shard, which with false gather once per micro-batch.",
       .foreign = {{"fsdp_reshard_after_forward", "torchtitan"}}},
      {.path = "fsdp.reduce",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(fsdp.reduce),
       .words = {"once", "every_micro_batch"},
       .meaning = "Reduces a unit's gradient once per step, or after every micro-batch: that keeps shards instead of "
                  "full gradients, costs a "
                  "call per micro-batch, and adds in another order, so bits differ from once."},
  };
}

std::vector<KeyRow> pipeline_rows() {
  return {
      {.path = "pipeline.schedule",
       .kind = KeyKind::kAnything,
       .meaning = "The order in which stages run micro-batches.",
       .foreign = {{"pipeline_parallel_schedule", "torchtitan"}},
       .later = true},
      {.path = "pipeline.virtual_stages",
       .kind = KeyKind::kAnything,
       .meaning = "Stages per pipeline rank.",
       .foreign = {{"num_layers_per_virtual_pipeline_stage", "Megatron"},
                   {"virtual_pipeline_model_parallel_size", "Megatron"}},
       .later = true},
      {.path = "recompute",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(recompute),
       .words = {"none", "full", "selective"},
       .meaning = "Which activations backward computes again instead of keeping them.",
       .foreign = {{"gradient_checkpointing", "Hugging Face"},
                   {"recompute_granularity", "Megatron"},
                   {"activation_checkpoint", "torchtitan"},
                   {"recompute_activations", "Megatron"}},
       .words_now = {"none"}},
  };
}

}  // namespace tessera::config
