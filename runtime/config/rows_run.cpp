// Rows of run and mesh.
#include "runtime/config/key_rows.h"

namespace tessera::config {
namespace {

std::string_view accept_name(std::string_view text) {
  if (text.empty() || text == "." || text == ".." || text.size() > 200 || text.find('/') != std::string_view::npos) {
    return "the name of a folder: not . or .., no slash, at most 200 bytes";
  }
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "the name of a folder, without control characters";
  }
  return {};
}

}  // namespace

std::vector<KeyRow> run_rows() {
  return {
      {.path = "run.name",
       .kind = KeyKind::kText,
       .field = TESSERA_JOB(run.name),
       .unset = "the job file's name without its suffix",
       .meaning = "Names the run; the run directory is runs/NAME unless --run-dir says otherwise.",
       .foreign = {{"run_name", "Hugging Face"}, {"wandb_run_name", "nanoGPT"}},
       .accepts = accept_name},
      {.path = "run.seed",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.seed),
       .range = {0, 0x1p64},
       .meaning = "Every random number of the run is a function of this seed and of what it is for."},
      {.path = "run.steps",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.steps),
       .range = {1, kMaxCount},
       .unset = "no limit but run.epochs",
       .meaning = "Ends the run after this many updates; steps or epochs is required, the first reached ends.",
       .unit = "updates",
       .foreign =
           {
               {"max_iters", "nanoGPT"},
               {"max_steps", "Hugging Face"},
               {"train_iters", "Megatron"},
           }},
      {.path = "run.epochs",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.epochs),
       .range = {1, kMaxCount},
       .unset = "no limit but run.steps",
       .meaning = "Ends the run after this many passes over the training data.",
       .unit = "epochs",
       .foreign = {{"num_train_epochs", "Hugging Face"}, {"max_epochs", "Lightning"}}},
      {.path = "run.log_every",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.log_every),
       .range = {1, kMaxCount},
       .meaning = "Writes a line of metrics every so many updates.",
       .unit = "updates",
       .foreign = {{"log_interval", "nanoGPT, Megatron"},
                   {"logging_steps", "Hugging Face"},
                   {"log_freq", "torchtitan"}}},
      {.path = "run.hash_every",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.hash_every),
       .range = {0, kMaxCount},
       .meaning = "Logs state_hash, the digest of parameters and optimizer state, every so many updates; 0 is never.",
       .unit = "updates"},
      {.path = "run.evaluate_every",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.evaluate_every),
       .range = {0, kMaxCount},
       .meaning = "Computes the validation loss every so many updates, before the first and after the last; 0 is "
                  "never. It is the "
                  "plain cross-entropy, without label smoothing and z_loss.",
       .unit = "updates",
       .foreign = {{"eval_interval", "nanoGPT, Megatron"},
                   {"eval_steps", "Hugging Face"},
                   {"evaluation_strategy", "Hugging Face"}}},
      {.path = "run.evaluate_batches",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.evaluate_batches),
       .range = {0, kMaxCount},
       .meaning =
           "Global batches per evaluation; 0 is the whole validation set. Refused where run.evaluate_every is not set.",
       .unit = "global batches",
       .foreign = {{"eval_iters", "nanoGPT, Megatron"}, {"max_eval_samples", "Hugging Face"}}},
      {.path = "run.sample_every",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(run.sample_every),
       .range = {0, kMaxCount},
       .meaning = "Generates a sample of text every so many updates and after the last; 0 is never.",
       .unit = "updates"},
      {.path = "run.on_nonfinite",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(run.on_nonfinite),
       .words = {"skip", "stop"},
       .meaning = "What all ranks do when a loss or gradient is NaN or infinite: skip the update and go on, or stop "
                  "with exit code 7.",
       .foreign = {{"check_for_nan_in_loss_and_grad", "Megatron"}}},
      {.path = "run.overfit_one_batch",
       .kind = KeyKind::kBool,
       .field = TESSERA_JOB(run.overfit_one_batch),
       .meaning = "Trains every step on the first global batch: the loss of a healthy setup falls towards 0.",
       .foreign = {{"overfit_batches", "Lightning"}}},
  };
}

std::vector<KeyRow> mesh_rows() {
  return {
      {.path = "mesh.dp",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(mesh.dp),
       .range = {1, kMaxRanks},
       .words = {"auto"},
       .unset = "auto",
       .meaning = "Ranks along the data-parallel axis; auto is the world size divided by pp × tp.",
       .unit = "ranks",
       .foreign =
           {
               {"data_parallel_size", "Megatron"},
               {"data_parallel_shard_degree", "torchtitan"},
               {"data_parallel_replicate_degree", "torchtitan"},
               {"data_parallel_degree", "torchtitan"},
           }},
      {.path = "mesh.pp",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(mesh.pp),
       .range = {1, kMaxRanks},
       .meaning = "Ranks along the pipeline axis: stages of consecutive blocks.",
       .unit = "ranks",
       .foreign = {{"pipeline_model_parallel_size", "Megatron"},
                   {"pipeline_parallel_size", "Megatron"},
                   {"pipeline_parallel_degree", "torchtitan"}},
       .only_now = 1},
      {.path = "mesh.tp",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(mesh.tp),
       .range = {1, kMaxRanks},
       .meaning = "Ranks along the tensor-parallel axis: heads, features and vocabulary split over ranks.",
       .unit = "ranks",
       .foreign = {{"tensor_model_parallel_size", "Megatron"},
                   {"tensor_parallel_size", "Megatron"},
                   {"tensor_parallel_degree", "torchtitan"},
                   {"tp_size", "Hugging Face"}},
       .only_now = 1},
      {.path = "mesh.placement",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(mesh.placement),
       .words = {"auto", "canonical"},
       .meaning = "Which world rank takes which place in the mesh: canonical keeps the order of ranks, auto lets the "
                  "topology decide."},
      {.path = "mesh.topology",
       .kind = KeyKind::kText,
       .field = TESSERA_JOB(mesh.topology),
       .meaning = "Where the machine's description comes from: live, an hwloc XML file, or an hwloc synthetic string."},
  };
}

}  // namespace tessera::config
