#include "runtime/train/checkpointing.h"

#include <fmt/format.h>

#include <exception>
#include <iterator>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/train/trainer.h"

namespace tessera {

Checkpointing::Checkpointing(FileSystem& files, RankExchange& ranks, Options options, ShardedModel& model,
                             AdamWOptimizer& optimizer, Allocator& allocator, StreamView compute)
    : files_(files),
      ranks_(ranks),
      options_(std::move(options)),
      model_(model),
      optimizer_(optimizer),
      allocator_(allocator),
      compute_(compute) {
  if (options_.config.every > 0) open_writer();
}

void Checkpointing::open_writer() {
  writer_.emplace(
      files_, ranks_,
      CheckpointWriter::Options{
          .directory = options_.directory,
          .run_id = options_.run_id,
          .retention = {options_.config.keep_latest, options_.config.keep_every},
      },
      allocator_.allocate(static_cast<std::size_t>(options_.staging_bytes), MemoryCategory::kCheckpoint, compute_));
}

// The library's errors are the same on all ranks: nobody has to be told.
void Checkpointing::agreed(const std::function<void()>& work) {
  try {
    work();
  } catch (const CheckpointError& error) {
    const std::string more = options_.explain_failure ? options_.explain_failure() : "";
    throw AgreedError(ExitCode::kCheckpoint, 0, error.line() + (more.empty() ? "" : "\n" + more));
  }
}

std::vector<SourceSlice> Checkpointing::slices() const {
  std::vector<SourceSlice> slices;
  if (!model_.is_first_replica()) return slices;
  for (int u = 0; u < model_.num_units(); ++u) {
    for (const std::string_view suffix : kStateSuffixes) {
      const std::span<float> values = optimizer_.state(u, suffix);
      if (values.empty()) continue;
      std::ranges::move(source_slices(model_.model(), model_.unit(u).layout(), model_.groups().shard, suffix, values),
                        std::back_inserter(slices));
    }
  }
  return slices;
}

void Checkpointing::begin(const RunFacts& facts, const Progress& at, WhenWritten when) {
  const bool waits_at_once = when == WhenWritten::kAtOnce || !options_.config.asynchronous;
  finish();
  if (last_saved_ == at.step) return;
  began_ = monotonic_seconds();
  // Before the copy is made: where the memory for it is taken for this save alone, the forward needs none beside it.
  std::optional<double> loss;
  if (waits_at_once) loss = options_.next_loss(at);
  if (!writer_) open_writer();
  SaveRequest request{.step = at.step, .slices = slices()};
  if (ranks_.rank() == 0) {
    request.model = model_fields(facts.config.model);
    request.training = training_state(facts, at);
    certificate_ = request.training.certificate.value();
  }
  agreed([&] { writer_->begin(std::move(request)); });
  uncertified_ = at;
  if (loss) certify(*loss);
  if (waits_at_once) finish();
}

void Checkpointing::certify(double loss) {
  uncertified_.reset();
  if (ranks_.rank() != 0) return;
  certificate_.loss = loss;
  writer_->certify(certificate_);
}

void Checkpointing::after_step(const StepOutcome& outcome) {
  if (!writer_ || !writer_->in_flight()) return;
  if (uncertified_) certify(outcome.first_loss);
  if (outcome.save_ready) agreed([&] { end(writer_->advance()); });
}

void Checkpointing::finish() {
  if (!writer_ || !writer_->in_flight()) return;
  if (uncertified_) certify(options_.next_loss(*uncertified_));
  agreed([&] { end(writer_->wait()); });
}

void Checkpointing::finish_after_error() noexcept {
  try {
    uncertified_.reset();
    finish();
  } catch (const std::exception& error) {
    log::warn(fmt::format("the save under way was not finished: {}", error.what()));
  }
}

void Checkpointing::end(const std::optional<SavedCheckpoint>& saved) {
  if (!saved) return;
  last_saved_ = saved->step;
  if (options_.config.every == 0) writer_.reset();  // gives its memory back
  if (options_.on_saved) options_.on_saved(*saved, monotonic_seconds() - began_);
}

}  // namespace tessera
