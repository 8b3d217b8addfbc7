// Rows of optimizer, schedule and loss.
#include "runtime/config/key_rows.h"

namespace tessera::config {
namespace {

bool decays(const JobConfig& job) {
  return job.schedule.name != "constant";
}
constexpr std::string_view kDecayingNow = "linear or cosine";

}  // namespace

std::vector<KeyRow> optimizer_rows() {
  return {
      {.path = "optimizer.name",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(optimizer.name),
       .words = {"adamw", "adam", "sgd", "rmsprop", "lion", "muon"},
       .meaning = "The update rule.",
       .foreign = {{"optim", "Hugging Face"}},
       .words_now = {"adamw"}},
      {.path = "optimizer.learning_rate",
       .kind = KeyKind::kNumber,
       .field = TESSERA_JOB(optimizer.learning_rate),
       .range = {0, kMaxFactor},
       .meaning = "The rate at the end of warm-up; schedule.* says how it moves.",
       .foreign = {{"lr", "Megatron, torchtitan"}}},
      {.path = "optimizer.betas",
       .kind = KeyKind::kNumbers,
       .field = TESSERA_JOB(optimizer.betas),
       .range = {0, 1, false, true},
       .meaning = "Decay of the first and the second moment.",
       .foreign = {{"beta1", "nanoGPT, torchtitan"},
                   {"beta2", "nanoGPT, torchtitan"},
                   {"adam_beta1", "Hugging Face, Megatron"},
                   {"adam_beta2", "Hugging Face, Megatron"}}},
      {.path = "optimizer.eps",
       .kind = KeyKind::kNumber,
       .field = TESSERA_JOB(optimizer.eps),
       .range = {1e-37, 1},
       .meaning = "Added to the root of the second moment.",
       .foreign = {{"adam_eps", "Megatron"}, {"adam_epsilon", "Hugging Face"}}},
      {.path = "optimizer.momentum",
       .kind = KeyKind::kAnything,
       .meaning = "Momentum of sgd and muon.",
       .foreign = {{"sgd_momentum", "Megatron"}},
       .later = true},
      {.path = "optimizer.nesterov",
       .kind = KeyKind::kAnything,
       .meaning = "Looks ahead along the momentum.",
       .later = true},
      {.path = "optimizer.weight_decay",
       .kind = KeyKind::kNumber,
       .field = TESSERA_JOB(optimizer.weight_decay),
       .range = {0, kMaxFactor},
       .meaning =
           "Decoupled decay of matrices (not of norms and biases): each update takes rate × decay of the weight."},
      {.path = "optimizer.clip_norm",
       .kind = KeyKind::kNumber,
       .field = TESSERA_JOB(optimizer.clip_norm),
       .range = {0, kMaxFactor},
       .meaning = "Scales the gradient down to this global norm where it is larger; 0 is off.",
       .foreign = {{"grad_clip", "nanoGPT"},
                   {"max_grad_norm", "Hugging Face"},
                   {"clip_grad", "Megatron"},
                   {"max_norm", "torchtitan"},
                   {"gradient_clipping", "DeepSpeed"}}},
      {.path = "optimizer.groups",
       .kind = KeyKind::kGroups,
       .field = TESSERA_JOB(optimizer.groups),
       .unset = "none",
       .meaning = "Other values for the parameters whose name matches; the last group that matches counts.",
       .foreign = {{"param_groups", "PyTorch"}}},
      {.path = "optimizer.groups[].match",
       .kind = KeyKind::kText,
       .field = TESSERA_FIELD(OptimizerGroup, match),
       .unset = "required",
       .meaning =
           "A regular expression found anywhere in the parameter's name (RE2: as Perl's, without back references and "
           "look-around). Of several groups that match, the last counts; one that matches none is refused."},
      {.path = "optimizer.groups[].learning_rate",
       .kind = KeyKind::kNumber,
       .field = TESSERA_FIELD(OptimizerGroup, learning_rate),
       .range = {0, kMaxFactor},
       .unset = "optimizer.learning_rate",
       .meaning = "The group's rate at the end of warm-up."},
      {.path = "optimizer.groups[].weight_decay",
       .kind = KeyKind::kNumber,
       .field = TESSERA_FIELD(OptimizerGroup, weight_decay),
       .range = {0, kMaxFactor},
       .unset = "as without the group",
       .meaning = "The group's decay."},
      {.path = "optimizer.groups[].frozen",
       .kind = KeyKind::kBool,
       .field = TESSERA_FIELD(OptimizerGroup, frozen),
       .meaning = "Never updates the group: no part of the gradient norm. Units of frozen parameters alone are not "
                  "reduced and have no moments.",
       .foreign = {{"requires_grad", "PyTorch"}}},
  };
}

std::vector<KeyRow> schedule_rows() {
  return {
      {.path = "schedule.name",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(schedule.name),
       .words = {"constant", "linear", "cosine", "step", "polynomial", "exponential", "rsqrt", "wsd"},
       .meaning = "How the rate moves after warm-up.",
       .foreign = {{"lr_scheduler_type", "Hugging Face"},
                   {"lr_decay_style", "Megatron"},
                   {"decay_type", "torchtitan"},
                   {"decay_lr", "nanoGPT"}},
       .words_now = {"constant", "linear", "cosine"}},
      {.path = "schedule.warmup_steps",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(schedule.warmup_steps),
       .range = {0, kMaxCount},
       .meaning = "Update N of the first warmup_steps uses rate × N ÷ warmup_steps.",
       .unit = "updates",
       .foreign = {{"warmup_iters", "nanoGPT"}, {"lr_warmup_iters", "Megatron"}, {"warmup_ratio", "Hugging Face"}}},
      {.path = "schedule.decay_steps",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(schedule.decay_steps),
       .range = {1, kMaxCount},
       .unset = "run.steps - warmup_steps",
       .meaning = "Updates after warm-up until the rate reaches min_learning_rate.",
       .unit = "updates",
       .foreign = {{"lr_decay_iters", "nanoGPT, Megatron"}},
       .decider = "schedule.name",
       .needs = kDecayingNow,
       .applies = decays,
       .fallback = +[](const JobConfig& job) -> std::optional<std::int64_t> {
         if (!job.run.steps) return std::nullopt;
         return *job.run.steps - job.schedule.warmup_steps;
       }},
      {.path = "schedule.min_learning_rate",
       .kind = KeyKind::kNumber,
       .field = TESSERA_JOB(schedule.min_learning_rate),
       .range = {0, kMaxFactor},
       .meaning = "The rate at the end of the decay.",
       .foreign = {{"min_lr", "nanoGPT, Megatron"},
                   {"lr_min", "torchtitan"},
                   {"min_lr_factor", "torchtitan"},
                   {"eta_min", "PyTorch"}},
       .decider = "schedule.name",
       .needs = kDecayingNow,
       .applies = decays},
      {.path = "schedule.power",
       .kind = KeyKind::kAnything,
       .meaning = "Exponent of the polynomial decay.",
       .later = true},
      {.path = "schedule.gamma",
       .kind = KeyKind::kAnything,
       .meaning = "Factor of the step and exponential decays.",
       .later = true},
      {.path = "schedule.step_size",
       .kind = KeyKind::kAnything,
       .meaning = "Updates between two drops of the step decay.",
       .later = true},
  };
}

std::vector<KeyRow> loss_rows() {
  return {
      {.path = "loss.label_smoothing",
       .kind = KeyKind::kNumber,
       .field = TESSERA_JOB(loss.label_smoothing),
       .range = {0, 1, false, true},
       .meaning = "Share of the target spread evenly over the vocabulary.",
       .foreign = {{"label_smoothing_factor", "Hugging Face"}}},
      {
          .path = "loss.z_loss",
          .kind = KeyKind::kNumber,
          .field = TESSERA_JOB(loss.z_loss),
          .range = {0, kMaxFactor},
          .meaning = "Weight of the squared log of the softmax's denominator.",
      },
      {.path = "loss.ignore_index",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(loss.ignore_index),
       .range = {-2147483648.0, 2147483647},
       .meaning = "Targets of this id count neither in the loss nor in its mean."},
  };
}

}  // namespace tessera::config
