#include "runtime/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fsdp/ledger_timeline.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/train/schedule.h"
#include "runtime/train/start.h"
#include "runtime/train/trace.h"
#include "runtime/train/training_run.h"

namespace tessera {
namespace {

// After this many skipped updates in a row the run ends: the weights themselves are lost.
constexpr std::int64_t kMaxSkipsInARow = 100;
constexpr double kSampleTemperature = 0.8;
constexpr std::int64_t kSampleTopK = 50;

class Trainer {
 public:
  explicit Trainer(const TrainContext& context) : run_(context) {}

  ExitCode run() {
    if (start(run_) == StartOutcome::kFinished) return ExitCode::kDone;
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
    if (run_.chaos != nullptr) run_.chaos->at_teardown();
    run_.gather.view().synchronize();
    run_.reduce.view().synchronize();
    enter(TeardownState::kPeers);
    if (run_.communicators != nullptr)
      run_.world().barrier({.what = "finished", .phase = "teardown"}, run_.reduce.view()).synchronize();
    enter(TeardownState::kBarrier);
    if (run_.communicators != nullptr)
      run_.world().barrier({.what = "end", .phase = "teardown"}, run_.reduce.view()).synchronize();
  }

  void enter(TeardownState state) {
    if (run_.context.teardown != nullptr) run_.context.teardown->enter(state);
  }

  // An error that all ranks agreed on ends the run: a save under way is finished, unless the error is about the state itself.
  void finish_save(ExitCode reason) noexcept {
    if (run_.saves && reason != ExitCode::kCollective && reason != ExitCode::kInternal)
      run_.saves->finish_after_error();
  }

  // Adds to the error that is being handled which deliberate fault it is the answer to.
  void name_fault() noexcept {
    if (run_.chaos == nullptr) return;
    const auto add = [&](Error& error, FoundBy means) {
      if (const std::string line = run_.chaos->report(leaving_ ? FoundBy::kTeardown : means); !line.empty()) {
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
    if (run_.calls != nullptr) run_.calls->end(static_cast<int>(code), message.substr(0, message.find('\n')), culprit);
    log::flush();
  }

 private:
  ExitCode loop() {
    const bool evaluates_first =
        run_.at.step == 0 ? run_.config.run.evaluate_every > 0 : due(run_.config.run.evaluate_every, run_.at.step);
    if (evaluates_first && evaluate(run_.at.step)) return stopped();
    std::int64_t skipped_in_a_row = 0;
    bool certified = !run_.resumed;
    while (!run_.is_finished(run_.at)) {
      const std::int64_t update = run_.at.step + 1;
      if (run_.context.before_step) run_.context.before_step(update);
      const double started = monotonic_seconds();
      run_.context.device.allocator().reset_peaks();
      if (run_.trace != nullptr) run_.trace->begin_step(update);
      const StepBatch data = load(*run_.loader, next_batch(run_.config, *run_.loader, run_.at));
      const double loaded = monotonic_seconds();
      const double rate = scheduled(run_.config.optimizer.learning_rate, update);
      if (run_.calls != nullptr) run_.calls->set_step(update);
      StepPrograms programs{&run_.plan.program, &run_.plan.program};
      if (run_.chaos != nullptr) programs = run_.chaos->begin_step(update);
      const StepOutcome outcome =
          run_.executor->train(*programs.executed, {.step = update,
                                                    .batch = &data,
                                                    .stop_requested = asked_to_stop(),
                                                    .save_ready = run_.saves->ready(),
                                                    .learning_rate = rate,
                                                    .schedule_factor = schedule_factor(rate, update),
                                                    .expected = programs.expected});
      if (run_.chaos != nullptr) run_.chaos->end_step();
      const double ended = monotonic_seconds();
      if (run_.trace != nullptr) run_.trace->end_window();
      if (!std::exchange(certified, true)) certify(outcome.first_loss);
      run_.saves->after_step(outcome);
      ++run_.at.batch;
      memory_peak_ = std::max(memory_peak_, outcome.allocated_peak);
      if (!outcome.updated) {
        ++run_.at.skipped;
        handle_skip(outcome, update, ++skipped_in_a_row);
      } else {
        run_.at.step = update;
        skipped_in_a_row = 0;
        report(rate, outcome, ended - started, loaded - started);
        if (run_.saves->is_due(update)) run_.saves->begin(run_.facts(), run_.at, WhenWritten::kBehindSteps);
        if (due(run_.config.run.evaluate_every, update) && evaluate(update)) return stopped();
        if (due(run_.config.run.sample_every, update) && update != run_.num_steps) sample(update);
      }
      if (run_.trace != nullptr && run_.trace->complete()) write_trace();
      if (outcome.stop && run_.at.step < run_.num_steps) return stopped();
    }
    // The last step is always logged, hashed and evaluated, whatever the intervals and whatever ended the run.
    if (run_.at.step > 0) {
      log_step(run_.config.run.hash_every > 0);
      if (run_.config.run.evaluate_every > 0 && evaluated_step_ != run_.at.step && evaluate(run_.at.step))
        return stopped();
    }
    if (run_.saves->saves_last_step()) run_.saves->begin(run_.facts(), run_.at, WhenWritten::kAtOnce);
    return ExitCode::kDone;
  }

  // The step after a resume sees the loss that the saving run saw.
  void certify(double first_loss) {
    run_.agreed([&] {
      if (const std::string note = check_first_loss(*run_.resumed, run_.facts(), first_loss); !note.empty())
        run_.say({note});
    });
  }

  template <typename Loader>
  StepBatch load(const Loader& loader, std::int64_t batch) {
    if (run_.trace != nullptr) run_.trace->begin_data();
    StepBatch data = loader.load(batch);
    if (run_.trace != nullptr) run_.trace->end();
    return data;
  }

  // What was recorded, where anything was that is not written yet.
  void write_trace() {
    if (!run_.trace->reached() || trace_written_) return;
    trace_written_ = true;
    tessera::write_trace(*run_.trace,
                         {.run = hex64(run_.run_id),
                          .world_rank = run_.context.world_rank,
                          .at = coordinates_of(run_.context.mesh, run_.logical_rank),
                          .host = run_.context.host},
                         run_.directory, run_.world(), run_.reduce.view(), run_.context.placement);
    run_.reporter->print(fmt::format("trace: {} | next: tessera trace {}, or ui.perfetto.dev",
                                     run_.directory.merged_trace(), run_.directory.path()));
  }

  // The range may end after the run does, or begin there.
  void finish_trace() {
    if (run_.trace == nullptr) return;
    write_trace();
    if (!run_.trace->reached()) {
      run_.reporter->print(
          fmt::format("trace: nothing is written, the run ended before step {}", run_.trace->steps().first));
    }
  }

  bool asked_to_stop() const { return run_.context.stop_requested && run_.context.stop_requested(); }

  ExitCode stopped() {
    run_.saves->begin(run_.facts(), run_.at, WhenWritten::kAtOnce);
    run_.reporter->print(fmt::format("stopping after step {}: saved step-{:08} in {:.1f} s; resume: same command",
                                     run_.at.step, run_.at.step, run_.save_seconds));
    return ExitCode::kStopped;
  }

  double scheduled(double rate, std::int64_t update) const {
    return learning_rate(run_.schedule, rate, run_.num_steps, update);
  }

  double schedule_factor(double rate, std::int64_t update) const {
    return run_.config.optimizer.learning_rate > 0 ? rate / run_.config.optimizer.learning_rate
                                                   : scheduled(1.0, update);
  }

  static bool due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

  void handle_skip(const StepOutcome& outcome, std::int64_t step, std::int64_t in_a_row) {
    std::vector<int> ranks;
    for (const int logical : outcome.non_finite_ranks)
      ranks.push_back(run_.context.placement.world_of_logical(logical));
    std::ranges::sort(ranks);
    const std::string names = fmt::format("{}", fmt::join(ranks, ", "));
    const std::string rehearsed = run_.chaos != nullptr ? run_.chaos->report(FoundBy::kAgreedDecision) : "";
    if (run_.config.run.on_nonfinite == "stop") {
      throw AgreedError(ExitCode::kNonFinite, 0,
                        fmt::format("step {}: loss or gradient is not finite on rank {}{}{}", step, names,
                                    rehearsed.empty() ? "" : "\n", rehearsed));
    }
    if (!rehearsed.empty()) run_.say({rehearsed});
    if (run_.first()) run_.reporter->skip(step, ranks);
    if (in_a_row >= kMaxSkipsInARow) {
      throw AgreedError(
          ExitCode::kNonFinite, 0,
          fmt::format("step {}: {} updates in a row were not finite, the last on rank {}", step, in_a_row, names));
    }
  }

  void report(double rate, const StepOutcome& outcome, double step_seconds, double data_seconds) {
    const std::int64_t tokens = run_.config.batch.global_batch_size * run_.config.model.seq_len;
    unlogged_ = StepMetrics{.step = run_.at.step,
                            .loss = outcome.loss,
                            .max_loss = outcome.max_loss,
                            .learning_rate = rate,
                            .grad_norm = outcome.grad_norm,
                            .tokens = tokens,
                            .tokens_seen = run_.at.batch * tokens,
                            .epoch = run_.loader->epoch_of(run_.at.batch - 1),
                            .tokens_per_second = static_cast<double>(tokens) / step_seconds,
                            .step_seconds = step_seconds,
                            .data_seconds = data_seconds,
                            .tflops = run_.plan.step_flops() / step_seconds / 1e12,
                            .memory_allocated_peak = outcome.allocated_peak,
                            .memory_reserved_peak = outcome.reserved_peak,
                            .skipped_steps = run_.at.skipped};
    const bool hashed = due(run_.config.run.hash_every, run_.at.step);
    if (hashed || due(run_.config.run.log_every, run_.at.step)) log_step(hashed);
  }

  // Writes the newest step unless that was done. Collective where hashed.
  void log_step(bool hashed) {
    if (!unlogged_) return;
    if (hashed) unlogged_->state_hash = run_.hash();
    run_.reporter->step(*unlogged_);
    unlogged_.reset();
  }

  // Mean loss over the validation windows; changes no training number. True where the ranks agreed to stop: then at the end of the batch in which
  // one of them was asked, and a part of the windows is no result.
  bool evaluate(std::int64_t step) {
    if (!run_.evaluation) return false;
    evaluated_step_ = step;
    if (run_.trace != nullptr) run_.trace->begin_evaluation(step);
    LossSum total;
    for (std::int64_t b = 0; b < run_.evaluation->num_batches(run_.config.run.evaluate_batches); ++b) {
      const StepBatch data = load(*run_.evaluation, b);
      const EvaluationOutcome outcome = run_.executor->evaluate(
          run_.plan.evaluation_program, {.step = step, .batch = &data, .stop_requested = asked_to_stop()});
      if (outcome.stop) return true;
      total.sum.merge(outcome.losses.sum);
      total.num_targets += outcome.losses.num_targets;
    }
    if (run_.trace != nullptr) run_.trace->end_window();
    run_.reporter->validation(step,
                              total.num_targets > 0 ? total.sum.value() / static_cast<double>(total.num_targets) : 0.0);
    return false;
  }

  void sample(std::int64_t step) {
    if (!run_.sampler)
      run_.sampler.emplace(run_.config, *run_.model, *run_.communicators, run_.context.device, run_.streams(),
                           run_.plan.schedule, run_.check.get());
    std::vector<std::uint32_t> prompt = run_.tokenizer->text_prefix();
    if (prompt.empty()) prompt = run_.tokenizer->encode("\n");
    if (prompt.empty()) prompt.push_back(0);
    SamplerOptions options{
        .num_tokens = kSampleTokens,
        .sampling = {.temperature = kSampleTemperature, .top_k = kSampleTopK, .seed = run_.config.run.seed},
        .num_choices = run_.tokenizer->vocab_size()};
    std::vector<std::uint32_t> text;
    std::exception_ptr not_finite;
    try {
      text = run_.sampler->generate(prompt, options, step);
    } catch (const NonFiniteError&) {
      not_finite = std::current_exception();  // of logits that every rank has: all come here, and leave in order
    }
    run_.agreed([&] {
      if (not_finite) std::rethrow_exception(not_finite);
    });
    std::erase_if(text, [&](std::uint32_t id) { return run_.tokenizer->is_special(id); });
    if (run_.first())
      run_.reporter->print(fmt::format("--- sample after step {} ---\n{}\n---", step, run_.tokenizer->decode(text)));
  }

  void finish_samples(ExitCode code) {
    if (code == ExitCode::kDone && run_.config.run.sample_every > 0) sample(run_.at.step);
    if (run_.chaos != nullptr && run_.first()) run_.say(run_.chaos->leftover());
    run_.reporter->flush();
  }

  // Both figures of the training steps, whose peaks the ranks exchange. The last word of a run that was stopped is that it was.
  void report_memory(ExitCode code) {
    if (!run_.first() || memory_peak_ == 0) return;
    const std::string line =
        fmt::format("memory   {} peak measured, {} predicted (at {})", format_bytes(memory_peak_),
                    format_bytes(run_.predicted_peak), peak_place(run_.plan.program, run_.plan.memory));
    if (code == ExitCode::kDone) run_.reporter->print(line);
    log::info(line);
  }

  TrainingRun run_;
  bool leaving_ = false;
  std::optional<StepMetrics> unlogged_;
  std::int64_t evaluated_step_ = -1;
  std::int64_t memory_peak_ = 0;  // bytes allocated in a training step, over all steps and ranks
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
