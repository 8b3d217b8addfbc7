// Rows of what surrounds the training: checkpoint, collectives, reproducibility, device, trace, chaos.
#include "runtime/config/chaos_faults.h"
#include "runtime/config/key_rows.h"

namespace tessera::config {
namespace {

std::string_view accept_resume(std::string_view text) {
  return text.empty() ? "auto, never, or the folder of a run or a checkpoint" : std::string_view{};
}

}  // namespace

std::vector<KeyRow> checkpoint_rows() {
  return {
      {.path = "checkpoint.every",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(checkpoint.every),
       .range = {0, kMaxCount},
       .meaning = "Saves every so many updates and after the last; 0 saves only when the run is asked to stop, which "
                  "always does.",
       .unit = "updates",
       .foreign =
           {
               {"save_steps", "Hugging Face"},
               {"save_interval", "Megatron"},
               {"interval", "torchtitan"},
           }},
      {.path = "checkpoint.keep_latest",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(checkpoint.keep_latest),
       .range = {0, kMaxCount},
       .meaning = "Keeps so many of the newest checkpoints, and deletes an older one once a newer is durable; 0 keeps "
                  "all.",
       .unit = "checkpoints",
       .foreign = {{"save_total_limit", "Hugging Face"}, {"keep_latest_k", "torchtitan"}}},
      {.path = "checkpoint.keep_every",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(checkpoint.keep_every),
       .range = {0, kMaxCount},
       .meaning = "Keeps the checkpoints of the steps that this divides for good; 0 is none.",
       .unit = "updates"},
      {.path = "checkpoint.asynchronous",
       .kind = KeyKind::kBool,
       .field = TESSERA_JOB(checkpoint.asynchronous),
       .meaning = "Writes while training goes on: a step waits only until its state is copied.",
       .foreign = {{"async_save", "Megatron"}, {"async_mode", "torchtitan"}}},
      {.path = "checkpoint.resume",
       .kind = KeyKind::kText,
       .field = TESSERA_JOB(checkpoint.resume),
       .meaning = "auto goes on from the newest checkpoint of the run directory that loads; never refuses a directory "
                  "that holds a run; a folder, of a run or a checkpoint, is gone on from in a run directory that is "
                  "empty.",
       .foreign = {{"resume_from_checkpoint", "Hugging Face"}, {"load", "Megatron"}},
       .accepts = accept_resume},
      {.path = "checkpoint.init_from",
       .kind = KeyKind::kText,
       .field = TESSERA_JOB(checkpoint.init_from),
       .unset = "none",
       .meaning = "A folder whose weights a fresh run starts from, with a new optimizer and from step 0: of a run, a "
                  "checkpoint, an import, or a Hugging Face model. A run that resumes ignores it, and says so.",
       .foreign = {{"pretrained_checkpoint", "Megatron"},
                   {"initial_load_path", "torchtitan"},
                   {"model_name_or_path", "Hugging Face"}}},
  };
}

std::vector<KeyRow> system_rows() {
  return {
      {.path = "collectives.backend",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(collectives.backend),
       .words = {"auto", "shm", "mpi", "nccl"},
       .meaning = "How ranks exchange data: shm inside one host, mpi across hosts; auto chooses.",
       .foreign = {{"ddp_backend", "Hugging Face"}, {"distributed_backend", "Megatron"}},
       .words_now = {"auto", "shm", "mpi"}},
      {.path = "collectives.fingerprint",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(collectives.fingerprint),
       .words = {"off", "log", "step", "strict"},
       .meaning =
           "When ranks find out that they make different calls: off never; log when tessera inspect reads their logs; "
           "step once a step; strict before the data of a wrong call is used."},
      {.path = "collectives.program_check",
       .kind = KeyKind::kBool,
       .field = TESSERA_JOB(collectives.program_check),
       .meaning = "Compares each call with the step program before it is issued."},
      {.path = "collectives.timeout_seconds",
       .kind = KeyKind::kNumber,
       .field = TESSERA_JOB(collectives.timeout_seconds),
       .range = {0, 1e9, true},
       .meaning = "A collective that takes longer ends the run.",
       .unit = "seconds",
       .foreign = {{"ddp_timeout", "Hugging Face"},
                   {"distributed_timeout_minutes", "Megatron"},
                   {"train_timeout_seconds", "torchtitan"},
                   {"init_timeout_seconds", "torchtitan"}}},
      {.path = "reproducibility.lanes",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(reproducibility.lanes),
       .range = {1, kMaxRanks},
       .words = {"auto"},
       .unset = "auto",
       .meaning = "Fixed leaves of the gradient sum: runs with equal lanes give equal bits at any dp that divides them "
                  "by a power of two; auto is dp.",
       .unit = "lanes"},
      {.path = "reproducibility.tp_splits",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(reproducibility.tp_splits),
       .range = {1, 65536},
       .meaning = "Fixed parts of the sums that tensor parallelism divides.",
       .unit = "parts",
       .only_now = 1},
      {.path = "reproducibility.deterministic",
       .kind = KeyKind::kAnything,
       .meaning = "Uses only deterministic kernels on CUDA; the CPU always does.",
       .foreign = {{"full_determinism", "Hugging Face"}, {"deterministic_mode", "Megatron"}},
       .later = true},
      {.path = "device.kind",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(device.kind),
       .words = {"auto", "cpu", "cuda"},
       .meaning = "What the ranks compute on.",
       .foreign = {{"device_type", "nanoGPT"}, {"use_cpu", "Hugging Face"}},
       .words_now = {"auto", "cpu"}},
      {.path = "device.threads",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(device.threads),
       .range = {1, 4096},
       .words = {"auto"},
       .unset = "auto",
       .meaning = "Compute threads of each rank; auto is the cores of its cpuset, shared among the ranks of a host.",
       .unit = "threads",
       .foreign = {{"num_threads", "PyTorch"}, {"omp_num_threads", "PyTorch"}}},
      {.path = "device.bind",
       .kind = KeyKind::kWord,
       .field = TESSERA_JOB(device.bind),
       .words = {"auto", "none"},
       .meaning = "Binds threads to cores, or leaves them where the system puts them."},
      {.path = "device.memory_limit",
       .kind = KeyKind::kByteSize,
       .field = TESSERA_JOB(device.memory_limit),
       .unset = "none",
       .meaning = "What one rank may have allocated at once (memory_allocated_peak); more is refused with exit code 6. "
                  "A job whose predicted peak is more, "
                  "or more than "
                  "the host's memory divided among its ranks, is refused before it trains, with the cheapest change "
                  "that would fit.",
       .unit = "bytes"},
      {.path = "trace.steps",
       .kind = KeyKind::kSteps,
       .field = TESSERA_JOB(trace.steps),
       .range = {1, kMaxCount},
       .unset = "none",
       .meaning = "First and last step whose instructions and collectives are timed on every rank, as a timeline in "
                  "trace/ of the run directory (tessera trace, ui.perfetto.dev). Steps that the run does not come to "
                  "are left out.",
       .unit = "steps",
       .foreign = {{"profile_freq", "torchtitan"},
                   {"profile_step_start", "Megatron"},
                   {"profile_step_end", "Megatron"},
                   {"enable_profiling", "torchtitan"}}},
      {.path = "chaos",
       .kind = KeyKind::kFaults,
       .field = TESSERA_JOB(chaos),
       .unset = "none",
       .meaning = "Deliberate faults, to rehearse failures; each fires once per run directory."},
      {.path = "chaos[].rank",
       .kind = KeyKind::kInteger,
       .field = TESSERA_FIELD(ChaosFault, rank),
       .range = {0, kMaxRanks - 1},
       .unset = "required",
       .meaning = "The world rank that goes wrong."},
      {.path = "chaos[].step",
       .kind = KeyKind::kInteger,
       .field = TESSERA_FIELD(ChaosFault, step),
       .range = {1, kMaxCount},
       .unset = "required",
       .meaning = "The update at which it does; slow: from which on; slow_teardown: that the run must have come to; "
                  "kill_in_save, disk_full, flip_bit: whose checkpoint it hits."},
      {.path = "chaos[].fault",
       .kind = KeyKind::kWord,
       .field = TESSERA_FIELD(ChaosFault, fault),
       .words = fault_names(),
       .unset = "required",
       .meaning = "What goes wrong."},
      {.path = "chaos[].op",
       .kind = KeyKind::kWord,
       .field = TESSERA_FIELD(ChaosFault, op),
       .words = {"all_gather", "reduce_scatter", "all_reduce", "broadcast"},
       .unset = "the first call of the step that the fault fits",
       .meaning =
           "The kind of call that a collective fault takes. A step has no broadcast of its own; where one is asked "
           "for, all ranks make one."},
      {.path = "chaos[].seconds",
       .kind = KeyKind::kNumber,
       .field = TESSERA_FIELD(ChaosFault, seconds),
       .range = {0, 1e9, true},
       .unset = "hang: for ever",
       .meaning = "How long a hang lasts, what slow adds to each step, how long slow_teardown waits.",
       .unit = "seconds"},
  };
}

}  // namespace tessera::config
