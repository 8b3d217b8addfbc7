#include "runtime/train/start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "checkpoint/folders.h"
#include "parallel/watchdog.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/ops/isa.h"
#include "runtime/train/init_from.h"
#include "runtime/train/memory_budget.h"
#include "runtime/train/plan_proof.h"
#include "runtime/train/schedule.h"

namespace tessera {
namespace {

FingerprintLevel fingerprint_level(const std::string& name) {
  if (name == "off") return FingerprintLevel::kOff;
  if (name == "log") return FingerprintLevel::kLog;
  if (name == "step") return FingerprintLevel::kStep;
  require(name == "strict", "collectives.fingerprint was checked when it was loaded");
  return FingerprintLevel::kStrict;
}

void note_saved(TrainingRun& run, const SavedCheckpoint& saved, double seconds) {
  run.save_seconds = seconds;
  log::info(fmt::format("saved {} ({}, root {}) in {:.1f} s", saved.folder,
                        format_bytes(static_cast<std::int64_t>(saved.bytes)), hex64(saved.root_hash), seconds));
  if (!run.first()) return;
  for (const std::string& warning : saved.warnings) log::warn(warning);
}

// The loss that the step after `at` begins with: its micro-batch 0 alone counts, whoever has it, and nothing but the loss comes of it.
double next_loss(TrainingRun& run, const Progress& at) {
  StepBatch batch;
  run.agreed(
      [&] { batch = run.loader->load_first(next_batch(run.config, *run.loader, at), run.config.loss.ignore_index); });
  const LossSum losses = run.executor
                             ->evaluate(run.plan.first_loss_program,
                                        {.step = at.step + 1, .batch = &batch, .loss_kind = LossKind::kTraining})
                             .losses;
  return losses.num_targets > 0 ? losses.sum.value() / static_cast<double>(losses.num_targets) : 0.0;
}

class Start {
 public:
  explicit Start(TrainingRun& run) : run_(run) {}

  StartOutcome go() {
    connect();
    run_.same_everywhere(hash_string(to_yaml(run_.config)), ExitCode::kUsage,
                         "config: ranks were given different jobs; hint: one file and the same --set on every rank");
    const FingerprintLevel level = fingerprint_level(run_.config.collectives.fingerprint);
    run_.communicators->for_each([&](Communicator& communicator, StreamId) { communicator.set_fingerprint(level); });
    run_.agreed([&] { open_data(); });
    run_.same_everywhere(
        data_digest_, ExitCode::kData,
        "data: ranks see different files under data.train or data.validation; hint: one file system, one "
        "working directory");
    run_.agreed([&] { build(); });
    run_.same_everywhere(initial_digest_, ExitCode::kInternal, "model: ranks start from different initial values");
    // Ranks with more threads have more scratch.
    run_.predicted_peak =
        static_cast<std::int64_t>(~run_.agree_min(~static_cast<std::uint64_t>(run_.plan.memory.peak()), "predicted"));
    // Only a job that can start touches what an earlier start left.
    run_.agreed([&] { acquire_run_directory(); });
    find_start();
    if (run_.resumed && run_.resumed->finished) {
      say_finished();
      return StartOutcome::kFinished;
    }
    run_.agreed([&] { open_run_directory(); });
    run_.agreed([&] { open_reports(); });
    run_.agreed([&] { open_checkpoints(); });
    announce();
    return StartOutcome::kReady;
  }

 private:
  void connect() {
    run_.communicators = std::make_unique<CommunicatorSet>(run_.context.mesh, run_.context.factory, hooks());
    run_.same_everywhere(hash_of(run_.communicators->groups()), ExitCode::kInternal,
                         "groups: ranks have different lists of groups");
    run_.exchange = std::make_unique<CommunicatorExchange>(run_.world(), run_.context.placement, run_.reduce.view());
    // Products are the one thing whose bits depend on the instruction set: every rank uses the lowest of all, and a resume the one before it.
    const auto isa = static_cast<Isa>(run_.agree_min(
        static_cast<std::uint64_t>(
            run_.first() ? isa_to_resume_with(run_.directory.path(), run_.config.checkpoint.resume) : current_isa()),
        "instruction set"));
    if (isa != current_isa()) set_isa(isa);
  }

  CommunicatorHooks hooks() const {
    // The level is the config's, and that ranks have the same config is what the first calls find out.
    return {
        .fingerprint = FingerprintLevel::kStrict,
        .observer = run_.observer,
        .faults = run_.chaos,
        .recorder = run_.trace,
        .explain = [&run = run_] { return run.calls != nullptr ? verdict_line(run.directory.path()) : std::string(); }};
  }

  // The ring in which calls are recorded from here on.
  void open_collective_log(std::uint64_t run_id) {
    if (fingerprint_level(run_.config.collectives.fingerprint) == FingerprintLevel::kOff) return;
    LogOwner owner = LogOwner::this_process();
    owner.run_id = run_id;
    owner.world_rank = run_.context.world_rank;
    owner.world_size = run_.context.world_size();
    owner.logical_rank = run_.logical_rank;
    owner.at = coordinates_of(run_.context.mesh, run_.logical_rank);
    owner.mesh = run_.context.mesh;
    run_.calls = CollectiveLog::create(run_.directory.collective_log(run_.context.world_rank), owner);
    run_.communicators->attach(*run_.calls);
    if (run_.context.on_log) run_.context.on_log(run_.calls.get());
  }

  void acquire_run_directory() {
    if (!run_.first()) return;
    run_.directory.acquire(run_.context.host, run_.lock);
    const std::string& resume = run_.config.checkpoint.resume;
    if (resume == "auto" || !run_.directory.holds_an_earlier_start()) return;
    throw ConfigError(
        fmt::format("run directory {}: holds a run, and checkpoint.resume is {}", run_.directory.path(), resume),
        "--resume auto goes on with it; another --run-dir leaves it alone");
  }

  // Where the run begins: run_.at, and the state that belongs to it.
  void find_start() {
    run_.resumed = resume(run_.files(), *run_.exchange,
                          {.facts = run_.facts(),
                           .data = *run_.train_data,
                           .allowed_changes = run_.context.allowed_changes,
                           .checkpoints = run_.directory.checkpoints(),
                           .agreed = [this](const std::function<void()>& phase) { run_.agreed(phase); },
                           .take_data = [this](std::vector<DataPart> parts) { open_batches(std::move(parts)); },
                           .is_finished = [this](const Progress& at) { return run_.is_finished(at); }},
                          *run_.model, *run_.optimizer, run_.compute.view());
    if (!run_.resumed && !run_.config.checkpoint.init_from.empty()) {
      init_notes_ = init_from(run_.files(), *run_.exchange, run_.config, *run_.model, run_.compute.view(),
                              [this](const std::function<void()>& phase) { run_.agreed(phase); });
    }
    if (!run_.resumed || run_.resumed->finished) return;
    run_.at = run_.resumed->at;
    if (!run_.resumed->changes_any({"schedule."}))
      run_.schedule.decay_steps = run_.resumed->manifest.training.schedule.decay_steps;
    run_.agreed([&] { check_certificate(*run_.resumed, run_.facts()); });
    const std::string saved = hex64(run_.resumed->manifest.state_hash), loaded = run_.hash();
    if (saved != loaded) {
      throw AgreedError(ExitCode::kCheckpoint, 0,
                        fmt::format("{}: state_hash {} was saved, {} was loaded", run_.resumed->folder, saved, loaded));
    }
  }

  void say_finished() {
    run_.reporter =
        std::make_unique<Reporter>(run_.first() ? run_.directory.metrics() : "", run_.context.progress, run_.num_steps);
    for (const std::string& note : run_.resumed->notes) run_.reporter->print(note);
    run_.reporter->print(finished_line(*run_.resumed, run_.num_steps));
  }

  void open_checkpoints() {
    run_.saves.emplace(
        run_.files(), *run_.exchange,
        Checkpointing::Options{
            .directory = run_.directory.checkpoints(),
            .run_id = run_.run_id,
            .config = run_.config.checkpoint,
            .staging_bytes = run_.plan.staging_bytes,
            .on_saved = [&run = run_](const SavedCheckpoint& saved,
                                      double seconds) { note_saved(run, saved, seconds); },
            .next_loss = [&run = run_](const Progress& at) { return next_loss(run, at); },
            .explain_failure = [&run = run_] { return run.chaos != nullptr ? run.chaos->report("the save") : ""; }},
        *run_.model, *run_.optimizer, run_.context.device.allocator(), run_.compute.view());
    if (run_.resumed && run_.resumed->is_own) run_.saves->resumed_at(run_.at.step);
  }

  void open_run_directory() {
    std::uint64_t nonce = 0;
    std::exception_ptr failure;
    if (run_.first()) {
      try {
        const std::uint64_t chosen = mix64(static_cast<std::uint64_t>(monotonic_ns())) >> 1;
        attempt_ = run_.directory.prepare(chosen,
                                          run_.resumed && run_.resumed->is_own ? std::optional(run_.at) : std::nullopt);
        nonce = chosen;
      } catch (...) {
        failure = std::current_exception();  // rethrown after the broadcast that the others wait in
      }
    }
    run_.world()
        .broadcast({.data = &nonce,
                    .count = 1,
                    .dtype = DType::kUInt64,
                    .root = logical_of_first(),
                    .tag = {.what = "run directory", .phase = "start"}},
                   run_.reduce.view())
        .synchronize();
    if (failure) std::rethrow_exception(failure);
    if (nonce != 0) {
      run_.directory.check_visible(nonce);
      if (run_.chaos != nullptr) open_chaos();
      log::open_file(run_.directory.log(run_.context.world_rank));
      open_collective_log(nonce);
      run_.run_id = nonce;
    }
  }

  void open_chaos() {
    run_.chaos->open();
    if (run_.context.on_chaos)
      run_.context.on_chaos([chaos = run_.chaos](FoundBy means) { return chaos->report(means); });
  }

  int logical_of_first() const { return run_.context.placement.logical_of_world.front(); }

  void open_reports() {
    run_.reporter =
        std::make_unique<Reporter>(run_.first() ? run_.directory.metrics() : "", run_.context.progress, run_.num_steps);
    if (!run_.first()) return;
    write_file(run_.directory.config(), to_yaml(resolved_config(run_.config, run_.context.batch.lanes)));
    write_file(run_.directory.plan(), run_.plan.json(run_.numerics));
    run_.directory.remove_nonce();
  }

  void open_data() {
    const ModelConfig& model = run_.config.model;
    const int dp_rank = coordinates_of(run_.context.mesh, run_.logical_rank).dp;
    TokenDataset dataset(run_.config.data.train, model.seq_len, model.vocab_size);
    run_.train_data = dataset;
    open_batches({make_data_part(dataset, run_.config, 0, 0)});
    const SequenceOrder& order = run_.loader->part_of(0).order;
    data_log_ =
        fmt::format("data: {} tokens, {} sequences per epoch in {} batches, the last {} dropped", dataset.num_tokens(),
                    dataset.num_sequences(), order.batches_per_epoch(), order.dropped_per_epoch());
    data_note_ = fmt::format("{} tokens, {} batches per epoch", format_count(dataset.num_tokens()),
                             format_count(order.batches_per_epoch()));
    if (order.dropped_per_epoch() > 0)
      data_note_ += fmt::format(", tail of {} sequences dropped", order.dropped_per_epoch());
    data_digest_ = content_digest(dataset, model.seq_len);
    run_.schedule = run_.config.schedule;
    // Counted from run.steps where that is given, whatever ends the run first; a resume keeps what the first start found.
    run_.schedule.decay_steps = run_.config.schedule.decay_steps.value_or(
        std::max<std::int64_t>(1, run_.config.run.steps.value_or(run_.num_steps) - run_.config.schedule.warmup_steps));
    if (!run_.config.data.validation.empty()) {
      std::vector<DataSource> sources;
      for (const std::string& path : run_.config.data.validation) sources.push_back({path, 1.0});
      TokenDataset validation(sources, model.seq_len, model.vocab_size);
      if (validation.num_sequences() == 0)
        throw DataError(fmt::format("data.validation: no file holds seq_len + 1 = {} tokens", model.seq_len + 1));
      data_digest_ = mix64(data_digest_ ^ content_digest(validation, model.seq_len));
      run_.evaluation.emplace(std::move(validation), run_.config.batch, run_.context.batch, model,
                              run_.config.loss.ignore_index, dp_rank);
    }
    if (run_.config.run.sample_every > 0) {
      if (run_.config.data.tokenizer.empty())
        throw ConfigError("run.sample_every: text needs data.tokenizer",
                          "data.tokenizer: bytes, a *.model or a tokenizer.json");
      run_.tokenizer = load_tokenizer(run_.config.data.tokenizer);
      check_vocabulary(*run_.tokenizer, model.vocab_size);
    }
  }

  // The batches to come, and the steps that they allow.
  void open_batches(std::vector<DataPart> parts) {
    run_.loader.emplace(std::move(parts), run_.config.batch, run_.context.batch, run_.config.model.seq_len,
                        coordinates_of(run_.context.mesh, run_.logical_rank).dp);
    run_.num_steps = run_.config.run.steps.value_or(std::numeric_limits<std::int64_t>::max());
    if (run_.config.run.epochs)
      run_.num_steps = std::min(run_.num_steps, run_.loader->batches_before_epoch(*run_.config.run.epochs));
  }

  void build() {
    const StreamView compute = run_.compute.view();
    run_.plan =
        make_plan(run_.config, run_.context.batch, run_.context.mesh, run_.logical_rank, run_.context.num_threads);
    Allocator& allocator = run_.context.device.allocator();
    for (const StepProgram* program :
         {&run_.plan.program, &run_.plan.evaluation_program, &run_.plan.first_loss_program}) {
      const ProofResult proof = prove_program(run_.plan, *program);
      require(proof.ok(), fmt::format("{}: {}", proof.text, fmt::join(proof.counterexample, "; ")));
    }
    check_memory(run_.config, run_.plan, memory_budget(run_.config.device, run_.context.device_memory),
                 run_.context.num_threads);
    allocator.set_limit(static_cast<std::size_t>(memory_limit_bytes(run_.config.device)));
    if (MemoryResource* shared = run_.context.factory.shared_memory(); shared != nullptr && run_.context.mesh.dp > 1) {
      // What peers read: shards when they gather, full gradients when they reduce. What is gathered is only written here.
      allocator.set_resource(MemoryCategory::kParameters, *shared);
      allocator.set_resource(MemoryCategory::kGradients, *shared);
    }
    run_.model = std::make_unique<ShardedModel>(run_.plan.model, run_.plan.units, run_.plan.groups, allocator, compute);
    run_.model->initialise(run_.config.run.seed, compute);
    initial_digest_ = run_.model->initial_digest(run_.config.run.seed);
    if (run_.config.collectives.program_check) {
      run_.check = std::make_unique<ProgramCheck>(*run_.model, run_.context.world_size());
      run_.observer->set_check(run_.check.get());
    }
    run_.optimizer = std::make_unique<AdamWOptimizer>(run_.config.optimizer, *run_.model, allocator, compute);
    run_.runner = std::make_unique<GptRunner>(run_.config.model, run_.config.loss, run_.config.batch.micro_batch_size,
                                              run_.context.device, compute);
    run_.executor = std::make_unique<Executor>(
        *run_.model, run_.optimizer.get(), *run_.runner, *run_.communicators, run_.context.device, run_.streams(),
        Executor::Options{
            .ignore_index = run_.config.loss.ignore_index,
            .clip_norm = run_.config.optimizer.clip_norm,
            .compare_histories = fingerprint_level(run_.config.collectives.fingerprint) == FingerprintLevel::kStep,
            .check = run_.check.get(),
            .chaos = run_.chaos.get(),
            .trace = run_.trace.get()});
    if (run_.chaos != nullptr) {
      std::vector<std::int64_t> shard_sizes;
      for (int u = 0; u < run_.model->num_units(); ++u) shard_sizes.push_back(run_.model->unit(u).layout().shard_size);
      run_.chaos->prepare(run_.plan.program, shard_sizes);
    }
    run_.numerics = make_numerics_record(run_.config, run_.context.batch, compute);
  }

  // The header, once everything is known and before anything is trained.
  void announce() {
    const std::uint64_t record = run_.numerics.hash();
    const std::uint64_t smallest = run_.agree_min(record, "numerics");
    const std::uint64_t largest = ~run_.agree_min(~record, "numerics");
    run_.reporter->print(run_.plan.header(run_.context, data_note_, run_.num_steps));
    if (run_.chaos != nullptr) run_.say(run_.chaos->announcement());
    if (run_.resumed) say_resumed();
    run_.say(init_notes_);
    if (attempt_ > 0 && !run_.resumed)
      run_.reporter->print(fmt::format("note: files of an earlier run without checkpoints moved to {}/attempts/{}",
                                       run_.directory.path(), attempt_));
    if (smallest != largest) {
      log::warn(
          "numerics: ranks differ in instruction set, library or kernel results; the promise of equal bits is off for "
          "this run");
    }
    log::info(data_log_);
    log::info("numerics: " + run_.numerics.json());
    run_.reporter->start(run_.at.step, run_.hash());
  }

  void say_resumed() {
    run_.say(run_.resumed->notes);
    for (const SkippedCheckpoint& skipped : run_.resumed->passed_over) {
      const auto step = step_of_folder(skipped.folder);
      if (const std::string found = step && run_.chaos != nullptr ? run_.chaos->report_damage(*step) : "";
          !found.empty())
        run_.say({found});
    }
    run_.say({resumed_line(*run_.resumed, run_.context.mesh)});
    if (!run_.config.checkpoint.init_from.empty())
      run_.say({fmt::format("note: checkpoint.init_from {} is ignored, the run has weights of its own",
                            run_.config.checkpoint.init_from)});
  }

  TrainingRun& run_;
  std::vector<std::string> init_notes_;  // on the weights that a fresh run begins with
  std::string data_note_, data_log_;
  std::uint64_t data_digest_ = 0, initial_digest_ = 0;
  int attempt_ = 0;
};

}  // namespace

StartOutcome start(TrainingRun& run) {
  return Start(run).go();
}

}  // namespace tessera
