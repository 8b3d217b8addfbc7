#include "runtime/train/checkpointing.h"

#include <iterator>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
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
    throw AgreedError(ExitCode::kCheckpoint, 0, error.line());
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

void Checkpointing::begin(const RunFacts& facts, const Progress& at) {
  finish();
  if (last_saved_ == at.step) return;
  if (!writer_) open_writer();
  began_ = monotonic_seconds();
  SaveRequest request{.step = at.step, .slices = slices()};
  if (ranks_.rank() == 0) {
    request.model = model_fields(facts.config.model);
    request.training = training_state(facts, at);
    certificate_ = request.training.certificate;
  }
  agreed([&] { writer_->begin(std::move(request)); });
  if (!options_.config.asynchronous) finish();
}

void Checkpointing::after_step(const StepOutcome& outcome) {
  if (!writer_ || !writer_->in_flight()) return;
  if (certificate_) {
    certificate_->loss = outcome.first_loss;
    writer_->certify(*std::exchange(certificate_, std::nullopt));
  }
  if (outcome.save_ready) agreed([&] { end(writer_->advance()); });
}

void Checkpointing::finish() {
  if (!writer_ || !writer_->in_flight()) return;
  agreed([&] { end(writer_->wait()); });
}

void Checkpointing::end(const std::optional<SavedCheckpoint>& saved) {
  if (!saved) return;
  certificate_.reset();
  last_saved_ = saved->step;
  if (options_.config.every == 0) writer_.reset();  // gives its memory back
  if (options_.on_saved) options_.on_saved(*saved, monotonic_seconds() - began_);
}

}  // namespace tessera
