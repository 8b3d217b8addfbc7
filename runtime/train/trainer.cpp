#include "runtime/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "checkpoint/communicator_exchange.h"
#include "checkpoint/folders.h"
#include "fsdp/ledger_timeline.h"
#include "fsdp/schedule.h"
#include "fsdp/units.h"
#include "parallel/collective_log.h"
#include "parallel/watchdog.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/ops/isa.h"
#include "runtime/train/agreement.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/chaos.h"
#include "runtime/train/chaos_files.h"
#include "runtime/train/checkpointing.h"
#include "runtime/train/executor.h"
#include "runtime/train/init_from.h"
#include "runtime/train/numerics.h"
#include "runtime/train/plan.h"
#include "runtime/train/plan_proof.h"
#include "runtime/train/program_check.h"
#include "runtime/train/reporter.h"
#include "runtime/train/resume.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_state.h"
#include "runtime/train/sampler.h"
#include "runtime/train/schedule.h"
#include "runtime/train/trace.h"
#include "runtime/train/trace_recorder.h"

namespace tessera {
namespace {

// After this many skipped updates in a row the run ends: the weights themselves are lost.
constexpr std::int64_t kMaxSkipsInARow = 100;
constexpr double kSampleTemperature = 0.8;
constexpr std::int64_t kSampleTopK = 50;

FingerprintLevel fingerprint_level(const std::string& name) {
  if (name == "off") return FingerprintLevel::kOff;
  if (name == "log") return FingerprintLevel::kLog;
  if (name == "step") return FingerprintLevel::kStep;
  require(name == "strict", "collectives.fingerprint was checked when it was loaded");
  return FingerprintLevel::kStrict;
}

class Trainer {
 public:
  explicit Trainer(const TrainContext& context)
      : context_(context),
        config_(context.config),
        logical_rank_(context.placement.logical_of_world.at(static_cast<std::size_t>(context.world_rank))),
        directory_(context.run_directory),
        compute_(context.device.create_stream("compute", StreamMode::kCompute)),
        gather_(context.device.create_stream("gather", StreamMode::kQueue)),
        reduce_(context.device.create_stream("reduce", StreamMode::kQueue)) {
    if (!config_.chaos.empty()) {
      chaos_ = std::make_shared<Chaos>(config_.chaos, context.world_rank, context.run_directory);
      chaos_files_ = make_chaos_file_system(files(), *chaos_);
    }
    if (config_.trace.steps) trace_ = std::make_shared<TraceRecorder>(*config_.trace.steps);
  }

  ~Trainer() {
    // What streams still hold uses all that goes next. After an error this can take as long as their calls wait for peers.
    for (const Stream* stream : {&gather_, &reduce_, &compute_}) {
      try {
        stream->view().synchronize();
      } catch (...) {
        // Said already, or about to be: the first error of a stream is the one that ended the job.
      }
    }
    if (context_.on_log && calls_ != nullptr) context_.on_log(nullptr);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  ExitCode run() {
    connect();
    same_everywhere(hash_string(to_yaml(config_)), ExitCode::kUsage,
                    "config: ranks were given different jobs; hint: one file and the same --set on every rank");
    const FingerprintLevel level = fingerprint_level(config_.collectives.fingerprint);
    communicators_->for_each([&](Communicator& communicator, StreamId) { communicator.set_fingerprint(level); });
    agreed([&] { open_data(); });
    same_everywhere(data_digest_, ExitCode::kData,
                    "data: ranks see different files under data.train or data.validation; hint: one file system, one "
                    "working directory");
    agreed([&] { build(); });
    same_everywhere(initial_digest_, ExitCode::kInternal, "model: ranks start from different initial values");
    // Ranks with more threads have more scratch.
    predicted_peak_ =
        static_cast<std::int64_t>(~agree_min(~static_cast<std::uint64_t>(plan_.memory.peak()), "predicted"));
    // Only a job that can start touches what an earlier start left.
    agreed([&] { acquire_run_directory(); });
    find_start();
    if (resumed_ && resumed_->finished) return say_finished();
    agreed([&] { open_run_directory(); });
    agreed([&] { open_reports(); });
    agreed([&] { open_checkpoints(); });
    announce();
    const ExitCode code = loop();
    finish_trace();
    finish_samples(code);
    report_memory(code);
    return code;
  }

  // parallel/teardown.h has the states. On return all ranks know that all are finished; what is left is ~Trainer.
  void leave() {
    enter(TeardownState::kStreams);
    leaving_ = true;
    if (chaos_ != nullptr) chaos_->at_teardown();
    gather_.view().synchronize();
    reduce_.view().synchronize();
    enter(TeardownState::kPeers);
    if (communicators_ != nullptr)
      world().barrier({.what = "finished", .phase = "teardown"}, reduce_.view()).synchronize();
    enter(TeardownState::kBarrier);
    if (communicators_ != nullptr) world().barrier({.what = "end", .phase = "teardown"}, reduce_.view()).synchronize();
  }

  void enter(TeardownState state) {
    if (context_.teardown != nullptr) context_.teardown->enter(state);
  }

  // An error that all ranks agreed on ends the run: a save under way is finished, unless the error is about the state itself.
  void finish_save(ExitCode reason) noexcept {
    if (saves_ && reason != ExitCode::kCollective && reason != ExitCode::kInternal) saves_->finish_after_error();
  }

  // Adds to the error that is being handled which deliberate fault it is the answer to.
  void name_fault() noexcept {
    if (chaos_ == nullptr) return;
    const auto add = [&](Error& error, FoundBy means) {
      if (const std::string line = chaos_->report(leaving_ ? FoundBy::kTeardown : means); !line.empty()) {
        error.add_note(line);
      }
    };
    try {
      throw;
    } catch (CollectiveError& error) {
      add(error, error.found_by());
    } catch (Error& error) {
      add(error, FoundBy::kError);
    } catch (...) {  // no error of ours can carry a note
    }
  }

  // Says in the collective log how this rank ended.
  void end_log(ExitCode code, std::string_view message = {}, int culprit = -1) noexcept {
    // One line: what chaos has to add is for the terminal and the text log.
    if (calls_ != nullptr) calls_->end(static_cast<int>(code), message.substr(0, message.find('\n')), culprit);
    log::flush();
  }

 private:
  bool first() const { return context_.world_rank == 0; }
  FileSystem& files() {
    if (chaos_files_ != nullptr) return *chaos_files_;
    return context_.files != nullptr ? *context_.files : *host_files_;
  }
  Communicator& world() { return communicators_->find("world", StreamId::kReduce); }
  void agreed(const std::function<void()>& phase) { run_agreed(world(), reduce_.view(), context_.placement, phase); }
  ExecutorStreams streams() const { return {compute_.view(), gather_.view(), reduce_.view()}; }

  // Every rank throws the same error where their values differ.
  void same_everywhere(std::uint64_t value, ExitCode code, const char* message) {
    const std::uint64_t smallest = agree_min(value, "same");
    const std::uint64_t largest = ~agree_min(~value, "same");
    if (smallest != largest) throw AgreedError(code, 0, message);
  }

  std::uint64_t agree_min(std::uint64_t value, const char* what) {
    world()
        .all_reduce({.data = &value,
                     .count = 1,
                     .dtype = DType::kUInt64,
                     .reduce = ReduceOp::kMin,
                     .tag = {.what = what, .phase = "start"}},
                    reduce_.view())
        .synchronize();
    return value;
  }

  void connect() {
    communicators_ = std::make_unique<CommunicatorSet>(context_.mesh, context_.factory, hooks());
    same_everywhere(hash_of(communicators_->groups()), ExitCode::kInternal,
                    "groups: ranks have different lists of groups");
    exchange_ = std::make_unique<CommunicatorExchange>(world(), context_.placement, reduce_.view());
    // Products are the one thing whose bits depend on the instruction set: every rank uses the lowest of all, and a resume the one before it.
    const auto isa = static_cast<Isa>(
        agree_min(static_cast<std::uint64_t>(first() ? isa_to_resume_with(directory_.path(), config_.checkpoint.resume)
                                                     : current_isa()),
                  "instruction set"));
    if (isa != current_isa()) set_isa(isa);
  }

  CommunicatorHooks hooks() const {
    // The level is the config's, and that ranks have the same config is what the first calls find out.
    return {.fingerprint = FingerprintLevel::kStrict,
            .observer = observer_,
            .faults = chaos_,
            .recorder = trace_,
            .explain = [this] { return calls_ != nullptr ? verdict_line(directory_.path()) : std::string(); }};
  }

  // The ring in which calls are recorded from here on.
  void open_collective_log(std::uint64_t run_id) {
    if (fingerprint_level(config_.collectives.fingerprint) == FingerprintLevel::kOff) return;
    LogOwner owner = LogOwner::this_process();
    owner.run_id = run_id;
    owner.world_rank = context_.world_rank;
    owner.world_size = context_.world_size();
    owner.logical_rank = logical_rank_;
    owner.at = coordinates_of(context_.mesh, logical_rank_);
    owner.mesh = context_.mesh;
    calls_ = CollectiveLog::create(directory_.collective_log(context_.world_rank), owner);
    communicators_->attach(*calls_);
    if (context_.on_log) context_.on_log(calls_.get());
  }

  void acquire_run_directory() {
    if (!first()) return;
    directory_.acquire(context_.host, lock_);
    const std::string& resume = config_.checkpoint.resume;
    if (resume == "auto" || !directory_.holds_an_earlier_start()) return;
    throw ConfigError(
        fmt::format("run directory {}: holds a run, and checkpoint.resume is {}", directory_.path(), resume),
        "--resume auto goes on with it; another --run-dir leaves it alone");
  }

  // Where the run begins: at_, and the state that belongs to it.
  void find_start() {
    resumed_ = resume(files(), *exchange_,
                      {.facts = facts(),
                       .data = *train_data_,
                       .allowed_changes = context_.allowed_changes,
                       .checkpoints = directory_.checkpoints(),
                       .agreed = [this](const std::function<void()>& phase) { agreed(phase); },
                       .take_data = [this](std::vector<DataPart> parts) { open_batches(std::move(parts)); },
                       .is_finished = [this](const Progress& at) { return is_finished(at); }},
                      *model_, *optimizer_, compute_.view());
    if (!resumed_ && !config_.checkpoint.init_from.empty()) {
      init_notes_ = init_from(*files_, *exchange_, config_, *model_, compute_.view(),
                              [this](const std::function<void()>& phase) { agreed(phase); });
    }
    if (!resumed_ || resumed_->finished) return;
    at_ = resumed_->at;
    if (!resumed_->changes_any({"schedule."})) schedule_.decay_steps = resumed_->manifest.training.schedule.decay_steps;
    agreed([&] { check_certificate(*resumed_, facts()); });
    const std::string saved = hex64(resumed_->manifest.state_hash), loaded = hash();
    if (saved != loaded) {
      throw AgreedError(ExitCode::kCheckpoint, 0,
                        fmt::format("{}: state_hash {} was saved, {} was loaded", resumed_->folder, saved, loaded));
    }
  }

  bool is_finished(const Progress& at) const {
    return at.step >= num_steps_ || (config_.run.epochs && loader_->epoch_of(at.batch) >= *config_.run.epochs);
  }

  ExitCode say_finished() {
    reporter_ = std::make_unique<Reporter>(first() ? directory_.metrics() : "", context_.progress, num_steps_);
    for (const std::string& note : resumed_->notes) reporter_->print(note);
    reporter_->print(finished_line(*resumed_, num_steps_));
    return ExitCode::kDone;
  }

  RunFacts facts() const {
    return {.config = config_, .mesh = context_.mesh, .loader = *loader_, .numerics = numerics_, .schedule = schedule_};
  }

  void open_checkpoints() {
    saves_.emplace(files(), *exchange_,
                   Checkpointing::Options{
                       .directory = directory_.checkpoints(),
                       .run_id = run_id_,
                       .config = config_.checkpoint,
                       .staging_bytes = plan_.staging_bytes,
                       .on_saved = [this](const SavedCheckpoint& saved, double seconds) { note_saved(saved, seconds); },
                       .next_loss = [this](const Progress& at) { return next_loss(at); },
                       .explain_failure = [this] { return chaos_ != nullptr ? chaos_->report("the save") : ""; }},
                   *model_, *optimizer_, context_.device.allocator(), compute_.view());
    if (resumed_ && resumed_->is_own) saves_->resumed_at(at_.step);
  }

  void note_saved(const SavedCheckpoint& saved, double seconds) {
    save_seconds_ = seconds;
    log::info(fmt::format("saved {} ({}, root {}) in {:.1f} s", saved.folder,
                          format_bytes(static_cast<std::int64_t>(saved.bytes)), hex64(saved.root_hash), seconds));
    if (!first()) return;
    for (const std::string& warning : saved.warnings) log::warn(warning);
  }

  void open_run_directory() {
    std::uint64_t nonce = 0;
    std::exception_ptr failure;
    if (first()) {
      try {
        const std::uint64_t chosen = mix64(static_cast<std::uint64_t>(monotonic_ns())) >> 1;
        attempt_ = directory_.prepare(chosen, resumed_ && resumed_->is_own ? std::optional(at_) : std::nullopt);
        nonce = chosen;
      } catch (...) {
        failure = std::current_exception();  // rethrown after the broadcast that the others wait in
      }
    }
    world()
        .broadcast({.data = &nonce,
                    .count = 1,
                    .dtype = DType::kUInt64,
                    .root = logical_of_first(),
                    .tag = {.what = "run directory", .phase = "start"}},
                   reduce_.view())
        .synchronize();
    if (failure) std::rethrow_exception(failure);
    if (nonce != 0) {
      directory_.check_visible(nonce);
      if (chaos_ != nullptr) open_chaos();
      log::open_file(directory_.log(context_.world_rank));
      open_collective_log(nonce);
      run_id_ = nonce;
    }
  }

  void open_chaos() {
    chaos_->open();
    if (context_.on_chaos) context_.on_chaos([chaos = chaos_](FoundBy means) { return chaos->report(means); });
  }

  int logical_of_first() const { return context_.placement.logical_of_world.front(); }

  void open_reports() {
    reporter_ = std::make_unique<Reporter>(first() ? directory_.metrics() : "", context_.progress, num_steps_);
    if (!first()) return;
    write_file(directory_.config(), to_yaml(resolved_config(config_, context_.batch.lanes)));
    write_file(directory_.plan(), plan_.json(numerics_));
    directory_.remove_nonce();
  }

  void open_data() {
    const ModelConfig& model = config_.model;
    const int dp_rank = coordinates_of(context_.mesh, logical_rank_).dp;
    TokenDataset dataset(config_.data.train, model.seq_len, model.vocab_size);
    train_data_ = dataset;
    open_batches({make_data_part(dataset, config_, 0, 0)});
    const SequenceOrder& order = loader_->part_of(0).order;
    data_log_ =
        fmt::format("data: {} tokens, {} sequences per epoch in {} batches, the last {} dropped", dataset.num_tokens(),
                    dataset.num_sequences(), order.batches_per_epoch(), order.dropped_per_epoch());
    data_note_ = fmt::format("{} tokens, {} batches per epoch", format_count(dataset.num_tokens()),
                             format_count(order.batches_per_epoch()));
    if (order.dropped_per_epoch() > 0)
      data_note_ += fmt::format(", tail of {} sequences dropped", order.dropped_per_epoch());
    data_digest_ = content_digest(dataset, model.seq_len);
    schedule_ = config_.schedule;
    // Counted from run.steps where that is given, whatever ends the run first; a resume keeps what the first start found.
    schedule_.decay_steps = config_.schedule.decay_steps.value_or(
        std::max<std::int64_t>(1, config_.run.steps.value_or(num_steps_) - config_.schedule.warmup_steps));
    if (!config_.data.validation.empty()) {
      std::vector<DataSource> sources;
      for (const std::string& path : config_.data.validation) sources.push_back({path, 1.0});
      TokenDataset validation(sources, model.seq_len, model.vocab_size);
      if (validation.num_sequences() == 0)
        throw DataError(fmt::format("data.validation: no file holds seq_len + 1 = {} tokens", model.seq_len + 1));
      data_digest_ = mix64(data_digest_ ^ content_digest(validation, model.seq_len));
      evaluation_.emplace(std::move(validation), config_.batch, context_.batch, model, config_.loss.ignore_index,
                          dp_rank);
    }
    if (config_.run.sample_every > 0) {
      if (config_.data.tokenizer.empty())
        throw ConfigError("run.sample_every: text needs data.tokenizer",
                          "data.tokenizer: bytes, a *.model or a tokenizer.json");
      tokenizer_ = load_tokenizer(config_.data.tokenizer);
      check_vocabulary(*tokenizer_, model.vocab_size);
    }
  }

  // The batches to come, and the steps that they allow.
  void open_batches(std::vector<DataPart> parts) {
    loader_.emplace(std::move(parts), config_.batch, context_.batch, config_.model.seq_len,
                    coordinates_of(context_.mesh, logical_rank_).dp);
    num_steps_ = config_.run.steps.value_or(std::numeric_limits<std::int64_t>::max());
    if (config_.run.epochs) num_steps_ = std::min(num_steps_, loader_->batches_before_epoch(*config_.run.epochs));
  }

  void build() {
    const StreamView compute = compute_.view();
    plan_ = make_plan(config_, context_.batch, context_.mesh, logical_rank_, context_.num_threads);
    Allocator& allocator = context_.device.allocator();
    for (const StepProgram* program : {&plan_.program, &plan_.evaluation_program, &plan_.first_loss_program}) {
      const ProofResult proof = prove_program(plan_, *program);
      require(proof.ok(), fmt::format("{}: {}", proof.text, fmt::join(proof.counterexample, "; ")));
    }
    check_memory(config_, plan_, memory_budget(config_.device, context_.device_memory), context_.num_threads);
    allocator.set_limit(static_cast<std::size_t>(memory_limit_bytes(config_.device)));
    if (MemoryResource* shared = context_.factory.shared_memory(); shared != nullptr && context_.mesh.dp > 1) {
      // What peers read: shards when they gather, full gradients when they reduce. What is gathered is only written here.
      allocator.set_resource(MemoryCategory::kParameters, *shared);
      allocator.set_resource(MemoryCategory::kGradients, *shared);
    }
    model_ = std::make_unique<ShardedModel>(plan_.model, plan_.units, plan_.groups, allocator, compute);
    model_->initialise(config_.run.seed, compute);
    initial_digest_ = model_->initial_digest(config_.run.seed);
    if (config_.collectives.program_check) {
      check_ = std::make_unique<ProgramCheck>(*model_, context_.world_size());
      observer_->set_check(check_.get());
    }
    optimizer_ = std::make_unique<AdamWOptimizer>(config_.optimizer, *model_, allocator, compute);
    runner_ = std::make_unique<GptRunner>(config_.model, config_.loss, config_.batch.micro_batch_size, context_.device,
                                          compute);
    executor_ = std::make_unique<Executor>(
        *model_, optimizer_.get(), *runner_, *communicators_, context_.device, streams(),
        Executor::Options{
            .ignore_index = config_.loss.ignore_index,
            .clip_norm = config_.optimizer.clip_norm,
            .compare_histories = fingerprint_level(config_.collectives.fingerprint) == FingerprintLevel::kStep,
            .check = check_.get(),
            .chaos = chaos_.get(),
            .trace = trace_.get()});
    if (chaos_ != nullptr) {
      std::vector<std::int64_t> shard_sizes;
      for (int u = 0; u < model_->num_units(); ++u) shard_sizes.push_back(model_->unit(u).layout().shard_size);
      chaos_->prepare(plan_.program, shard_sizes);
    }
    numerics_ = make_numerics_record(config_, context_.batch, compute);
  }

  // The header, once everything is known and before anything is trained.
  void announce() {
    const std::uint64_t record = numerics_.hash();
    const std::uint64_t smallest = agree_min(record, "numerics");
    const std::uint64_t largest = ~agree_min(~record, "numerics");
    reporter_->print(plan_.header(context_, data_note_, num_steps_));
    if (chaos_ != nullptr) say(chaos_->announcement());
    if (resumed_) say_resumed();
    say(init_notes_);
    if (attempt_ > 0 && !resumed_)
      reporter_->print(fmt::format("note: files of an earlier run without checkpoints moved to {}/attempts/{}",
                                   directory_.path(), attempt_));
    if (smallest != largest) {
      log::warn(
          "numerics: ranks differ in instruction set, library or kernel results; the promise of equal bits is off for "
          "this run");
    }
    log::info(data_log_);
    log::info("numerics: " + numerics_.json());
    reporter_->start(at_.step, hash());
  }

  void say_resumed() {
    say(resumed_->notes);
    for (const SkippedCheckpoint& skipped : resumed_->passed_over) {
      const auto step = step_of_folder(skipped.folder);
      if (const std::string found = step && chaos_ != nullptr ? chaos_->report_damage(*step) : ""; !found.empty())
        say({found});
    }
    say({resumed_line(*resumed_, context_.mesh)});
    if (!config_.checkpoint.init_from.empty())
      say({fmt::format("note: checkpoint.init_from {} is ignored, the run has weights of its own",
                       config_.checkpoint.init_from)});
  }

  // On the terminal (rank 0) and in the log of this rank.
  void say(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      reporter_->print(line);
      log::info(line);
    }
  }

  std::string hash() {
    std::vector<std::uint64_t> parts(static_cast<std::size_t>(context_.world_size()), 0);  // by logical rank
    parts[static_cast<std::size_t>(logical_rank_)] = optimizer_->state_hash(compute_.view());
    world()
        .all_reduce({.data = parts.data(),
                     .count = parts.size(),
                     .dtype = DType::kUInt64,
                     .tag = {.what = "state_hash", .phase = "hash"}},
                    reduce_.view())
        .synchronize();
    const ReplicatedSum total = sum_of_replicas(parts, replica_sets(config_.fsdp, context_.mesh));
    if (total.first >= 0) {
      throw AgreedError(ExitCode::kCollective, 0,
                        fmt::format("replicas: ranks {} and {} hold the same shards, and their parameters or moments "
                                    "differ; hint: one of them "
                                    "computes or adds wrongly",
                                    context_.placement.world_of_logical(total.first),
                                    context_.placement.world_of_logical(total.other)));
    }
    return hex64(total.sum);
  }

  ExitCode loop() {
    const bool evaluates_first =
        at_.step == 0 ? config_.run.evaluate_every > 0 : due(config_.run.evaluate_every, at_.step);
    if (evaluates_first && evaluate(at_.step)) return stopped();
    std::int64_t skipped_in_a_row = 0;
    bool certified = !resumed_;
    while (!is_finished(at_)) {
      const std::int64_t update = at_.step + 1;
      const double started = monotonic_seconds();
      context_.device.allocator().reset_peaks();
      if (trace_ != nullptr) trace_->begin_step(update);
      const StepBatch data = load(*loader_, next_batch(config_, *loader_, at_));
      const double loaded = monotonic_seconds();
      const double rate = scheduled(config_.optimizer.learning_rate, update);
      if (calls_ != nullptr) calls_->set_step(update);
      StepPrograms programs{&plan_.program, &plan_.program};
      if (chaos_ != nullptr) programs = chaos_->begin_step(update);
      const StepOutcome outcome =
          executor_->train(*programs.executed, {.step = update,
                                                .batch = &data,
                                                .stop_requested = asked_to_stop(),
                                                .save_ready = saves_->ready(),
                                                .learning_rate = rate,
                                                .schedule_factor = schedule_factor(rate, update),
                                                .expected = programs.expected});
      if (chaos_ != nullptr) chaos_->end_step();
      const double ended = monotonic_seconds();
      if (trace_ != nullptr) trace_->end_window();
      if (!std::exchange(certified, true)) certify(outcome.first_loss);
      saves_->after_step(outcome);
      ++at_.batch;
      memory_peak_ = std::max(memory_peak_, outcome.allocated_peak);
      if (!outcome.updated) {
        ++at_.skipped;
        handle_skip(outcome, update, ++skipped_in_a_row);
      } else {
        at_.step = update;
        skipped_in_a_row = 0;
        report(rate, outcome, ended - started, loaded - started);
        if (saves_->is_due(update)) saves_->begin(facts(), at_, WhenWritten::kBehindSteps);
        if (due(config_.run.evaluate_every, update) && evaluate(update)) return stopped();
        if (due(config_.run.sample_every, update) && update != num_steps_) sample(update);
      }
      if (trace_ != nullptr && trace_->complete()) write_trace();
      if (outcome.stop && at_.step < num_steps_) return stopped();
    }
    // The last step is always logged, hashed and evaluated, whatever the intervals and whatever ended the run.
    if (at_.step > 0) {
      log_step(config_.run.hash_every > 0);
      if (config_.run.evaluate_every > 0 && evaluated_step_ != at_.step && evaluate(at_.step)) return stopped();
    }
    if (saves_->saves_last_step()) saves_->begin(facts(), at_, WhenWritten::kAtOnce);
    return ExitCode::kDone;
  }

  // The step after a resume sees the loss that the saving run saw.
  void certify(double first_loss) {
    agreed([&] {
      if (const std::string note = check_first_loss(*resumed_, facts(), first_loss); !note.empty()) say({note});
    });
  }

  template <typename Loader>
  StepBatch load(const Loader& loader, std::int64_t batch) {
    if (trace_ != nullptr) trace_->begin_data();
    StepBatch data = loader.load(batch);
    if (trace_ != nullptr) trace_->end();
    return data;
  }

  // What was recorded, where anything was that is not written yet.
  void write_trace() {
    if (!trace_->reached() || trace_written_) return;
    trace_written_ = true;
    tessera::write_trace(*trace_,
                         {.run = hex64(run_id_),
                          .world_rank = context_.world_rank,
                          .at = coordinates_of(context_.mesh, logical_rank_),
                          .host = context_.host},
                         directory_, world(), reduce_.view(), context_.placement);
    reporter_->print(fmt::format("trace: {} | next: tessera trace {}, or ui.perfetto.dev", directory_.merged_trace(),
                                 directory_.path()));
  }

  // The range may end after the run does, or begin there.
  void finish_trace() {
    if (trace_ == nullptr) return;
    write_trace();
    if (!trace_->reached()) {
      reporter_->print(fmt::format("trace: nothing is written, the run ended before step {}", trace_->steps().first));
    }
  }

  bool asked_to_stop() const { return context_.stop_requested && context_.stop_requested(); }

  // The loss that the step after `at` begins with: its micro-batch 0 alone counts, whoever has it, and nothing but the loss comes of it.
  double next_loss(const Progress& at) {
    StepBatch batch;
    agreed([&] { batch = loader_->load_first(next_batch(config_, *loader_, at), config_.loss.ignore_index); });
    const LossSum losses = executor_->evaluate(plan_.first_loss_program, {.step = at.step + 1, .batch = &batch}).losses;
    return losses.num_targets > 0 ? losses.sum.value() / static_cast<double>(losses.num_targets) : 0.0;
  }

  ExitCode stopped() {
    saves_->begin(facts(), at_, WhenWritten::kAtOnce);
    reporter_->print(fmt::format("stopping after step {}: saved step-{:08} in {:.1f} s; resume: same command", at_.step,
                                 at_.step, save_seconds_));
    return ExitCode::kStopped;
  }

  double scheduled(double rate, std::int64_t update) const {
    return learning_rate(schedule_, rate, num_steps_, update);
  }

  double schedule_factor(double rate, std::int64_t update) const {
    return config_.optimizer.learning_rate > 0 ? rate / config_.optimizer.learning_rate : scheduled(1.0, update);
  }

  static bool due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

  void handle_skip(const StepOutcome& outcome, std::int64_t step, std::int64_t in_a_row) {
    std::vector<int> ranks;
    for (const int logical : outcome.non_finite_ranks) ranks.push_back(context_.placement.world_of_logical(logical));
    std::ranges::sort(ranks);
    const std::string names = fmt::format("{}", fmt::join(ranks, ", "));
    const std::string rehearsed = chaos_ != nullptr ? chaos_->report(FoundBy::kAgreedDecision) : "";
    if (config_.run.on_nonfinite == "stop") {
      throw AgreedError(ExitCode::kNonFinite, 0,
                        fmt::format("step {}: loss or gradient is not finite on rank {}{}{}", step, names,
                                    rehearsed.empty() ? "" : "\n", rehearsed));
    }
    if (!rehearsed.empty()) say({rehearsed});
    if (first()) reporter_->skip(step, ranks);
    if (in_a_row >= kMaxSkipsInARow) {
      throw AgreedError(
          ExitCode::kNonFinite, 0,
          fmt::format("step {}: {} updates in a row were not finite, the last on rank {}", step, in_a_row, names));
    }
  }

  void report(double rate, const StepOutcome& outcome, double step_seconds, double data_seconds) {
    const std::int64_t tokens = config_.batch.global_batch_size * config_.model.seq_len;
    unlogged_ = StepMetrics{.step = at_.step,
                            .loss = outcome.loss,
                            .max_loss = outcome.max_loss,
                            .learning_rate = rate,
                            .grad_norm = outcome.grad_norm,
                            .tokens = tokens,
                            .tokens_seen = at_.batch * tokens,
                            .epoch = loader_->epoch_of(at_.batch - 1),
                            .tokens_per_second = static_cast<double>(tokens) / step_seconds,
                            .step_seconds = step_seconds,
                            .data_seconds = data_seconds,
                            .tflops = plan_.step_flops() / step_seconds / 1e12,
                            .memory_allocated_peak = outcome.allocated_peak,
                            .memory_reserved_peak = outcome.reserved_peak,
                            .skipped_steps = at_.skipped};
    const bool hashed = due(config_.run.hash_every, at_.step);
    if (hashed || due(config_.run.log_every, at_.step)) log_step(hashed);
  }

  // Writes the newest step unless that was done. Collective where hashed.
  void log_step(bool hashed) {
    if (!unlogged_) return;
    if (hashed) unlogged_->state_hash = hash();
    reporter_->step(*unlogged_);
    unlogged_.reset();
  }

  // Mean loss over the validation windows; changes no training number. True where the ranks agreed to stop: then at the end of the batch in which
  // one of them was asked, and a part of the windows is no result.
  bool evaluate(std::int64_t step) {
    if (!evaluation_) return false;
    evaluated_step_ = step;
    if (trace_ != nullptr) trace_->begin_evaluation(step);
    LossSum total;
    for (std::int64_t b = 0; b < evaluation_->num_batches(config_.run.evaluate_batches); ++b) {
      const StepBatch data = load(*evaluation_, b);
      const EvaluationOutcome outcome = executor_->evaluate(
          plan_.evaluation_program, {.step = step, .batch = &data, .stop_requested = asked_to_stop()});
      if (outcome.stop) return true;
      total.sum.merge(outcome.losses.sum);
      total.num_targets += outcome.losses.num_targets;
    }
    if (trace_ != nullptr) trace_->end_window();
    reporter_->validation(step,
                          total.num_targets > 0 ? total.sum.value() / static_cast<double>(total.num_targets) : 0.0);
    return false;
  }

  void sample(std::int64_t step) {
    if (!sampler_)
      sampler_.emplace(config_, *model_, *communicators_, context_.device, streams(), plan_.schedule, check_.get());
    std::vector<std::uint32_t> prompt = tokenizer_->text_prefix();
    if (prompt.empty()) prompt = tokenizer_->encode("\n");
    if (prompt.empty()) prompt.push_back(0);
    SamplerOptions options{
        .num_tokens = kSampleTokens,
        .sampling = {.temperature = kSampleTemperature, .top_k = kSampleTopK, .seed = config_.run.seed},
        .num_choices = tokenizer_->vocab_size()};
    std::vector<std::uint32_t> text;
    std::exception_ptr not_finite;
    try {
      text = sampler_->generate(prompt, options, step);
    } catch (const NonFiniteError&) {
      not_finite = std::current_exception();  // of logits that every rank has: all come here, and leave in order
    }
    agreed([&] {
      if (not_finite) std::rethrow_exception(not_finite);
    });
    std::erase_if(text, [&](std::uint32_t id) { return tokenizer_->is_special(id); });
    if (first()) reporter_->print(fmt::format("--- sample after step {} ---\n{}\n---", step, tokenizer_->decode(text)));
  }

  void finish_samples(ExitCode code) {
    if (code == ExitCode::kDone && config_.run.sample_every > 0) sample(at_.step);
    if (chaos_ != nullptr && first()) say(chaos_->leftover());
    reporter_->flush();
  }

  // Both figures of the training steps, whose peaks the ranks exchange. The last word of a run that was stopped is that it was.
  void report_memory(ExitCode code) {
    if (!first() || memory_peak_ == 0) return;
    const std::string line = fmt::format("memory   {} peak measured, {} predicted (at {})", format_bytes(memory_peak_),
                                         format_bytes(predicted_peak_), peak_place(plan_.program, plan_.memory));
    if (code == ExitCode::kDone) reporter_->print(line);
    log::info(line);
  }

  const TrainContext& context_;
  const JobConfig& config_;
  int logical_rank_;
  RunDirectory directory_;
  std::optional<RunLock> lock_;  // of rank 0: the last to go
  // Destroyed in reverse: what uses a stream or a communicator goes before it.
  std::unique_ptr<CollectiveLog> calls_;
  std::shared_ptr<Chaos> chaos_;
  std::shared_ptr<TraceRecorder> trace_;
  bool leaving_ = false;
  std::shared_ptr<ProgramObserver> observer_ = std::make_shared<ProgramObserver>();
  std::unique_ptr<FileSystem> host_files_ = make_posix_file_system(), chaos_files_;
  std::unique_ptr<CommunicatorSet> communicators_;
  Stream compute_, gather_, reduce_;
  std::unique_ptr<CommunicatorExchange> exchange_;
  Plan plan_;
  std::optional<TokenDataset> train_data_;  // of all files that there are
  std::optional<BatchLoader> loader_;
  std::optional<EvaluationLoader> evaluation_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ShardedModel> model_;
  std::unique_ptr<AdamWOptimizer> optimizer_;
  std::unique_ptr<GptRunner> runner_;
  std::unique_ptr<ProgramCheck> check_;
  std::unique_ptr<Executor> executor_;
  std::optional<Sampler> sampler_;
  std::optional<Checkpointing> saves_;
  std::unique_ptr<Reporter> reporter_;
  std::optional<ResumedRun> resumed_;
  ScheduleConfig schedule_;  // with decay_steps resolved
  Progress at_;
  NumericsRecord numerics_;
  std::vector<std::string> init_notes_;  // on the weights that a fresh run begins with
  std::string data_note_, data_log_;
  std::uint64_t data_digest_ = 0, initial_digest_ = 0;
  std::optional<StepMetrics> unlogged_;
  std::int64_t num_steps_ = 0, evaluated_step_ = -1;
  double save_seconds_ = 0;          // of the newest save
  std::int64_t memory_peak_ = 0;     // bytes allocated in a training step, over all steps and ranks
  std::int64_t predicted_peak_ = 0;  // bytes of a training step, the largest of all ranks
  int attempt_ = 0;
  std::uint64_t run_id_ = 0;
  bool trace_written_ = false;
};

std::pair<ExitCode, std::string> code_and_message(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {known.exit_code(), known.what()};
  } catch (const std::exception& other) {
    return {ExitCode::kInternal, other.what()};
  } catch (...) {
    return {ExitCode::kInternal, "something that is no exception was thrown"};
  }
}

ExitCode run_trainer(const TrainContext& context) {
  Trainer trainer(context);
  try {
    const ExitCode code = trainer.run();
    trainer.leave();
    trainer.end_log(code);
    trainer.enter(TeardownState::kCommunicators);
    return code;
  } catch (const AgreedError& error) {
    const std::exception_ptr error_before_leaving = std::current_exception();
    trainer.finish_save(error.exit_code);
    trainer.end_log(error.exit_code, error.what(), error.rank);
    try {
      trainer.leave();
      trainer.enter(TeardownState::kCommunicators);
    } catch (...) {
      // Leaving in order failed: the error that all agreed on is still the one to show.
      if (context.on_fatal) context.on_fatal(error_before_leaving);
    }
    throw;
  } catch (...) {
    // Peers do not know: nothing may be torn down here, since that would wait for them.
    trainer.name_fault();
    const auto [code, message] = code_and_message(std::current_exception());
    trainer.end_log(code, message);
    if (context.on_fatal) context.on_fatal(std::current_exception());
    throw;
  }
}

}  // namespace

ExitCode train(const TrainContext& context) {
  // The factory may go before the device does: nothing of its shared memory stays behind.
  const auto give_back = [&] { context.device.allocator().use_own_resource(); };
  try {
    const ExitCode code = run_trainer(context);
    give_back();
    return code;
  } catch (...) {
    give_back();
    throw;
  }
}

}  // namespace tessera
