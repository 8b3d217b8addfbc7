#include "runtime/train/batch_loader.h"

#include <algorithm>
#include <span>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

StepBatch make_batch(std::int64_t num_micro_batches, std::int64_t micro_batch_size, std::int64_t seq_len) {
  StepBatch batch;
  batch.micro_batch_size = micro_batch_size;
  batch.seq_len = seq_len;
  batch.tokens.resize(static_cast<std::size_t>(num_micro_batches * micro_batch_size * seq_len));
  batch.targets.resize(batch.tokens.size());
  return batch;
}

std::span<std::int32_t> row(std::vector<std::int32_t>& ids, std::int64_t index, std::int64_t seq_len) {
  return std::span(ids).subspan(static_cast<std::size_t>(index * seq_len), static_cast<std::size_t>(seq_len));
}

}  // namespace

std::int64_t StepBatch::num_targets(std::int64_t ignore_index) const {
  return static_cast<std::int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), ignore_index);
}

std::uint64_t StepBatch::digest() const {
  return hash_bytes(targets.data(), targets.size() * sizeof(std::int32_t),
                    hash_bytes(tokens.data(), tokens.size() * sizeof(std::int32_t)));
}

BatchLoader::BatchLoader(TokenDataset dataset, SequenceOrder order, const BatchConfig& batch,
                         const ResolvedBatch& resolved, std::int64_t seq_len, int dp_rank)
    : BatchLoader(std::vector<DataPart>{{std::move(dataset), order}}, batch, resolved, seq_len, dp_rank) {}

BatchLoader::BatchLoader(std::vector<DataPart> parts, const BatchConfig& batch, const ResolvedBatch& resolved,
                         std::int64_t seq_len, int dp_rank)
    : parts_(std::move(parts)),
      global_batch_size_(batch.global_batch_size),
      micro_batch_size_(batch.micro_batch_size),
      seq_len_(seq_len),
      num_micro_batches_(resolved.micro_batches_per_rank),
      first_slot_(dp_rank * resolved.micro_batches_per_rank * batch.micro_batch_size) {
  require(!parts_.empty(), "a run reads files");
}

const DataPart& BatchLoader::part_of(std::int64_t index) const {
  const auto after = std::ranges::find_if(parts_.begin() + 1, parts_.end(),
                                          [&](const DataPart& part) { return part.order.first_batch() > index; });
  return *(after - 1);
}

std::int64_t BatchLoader::batches_before_epoch(std::int64_t epochs) const {
  const auto after = std::ranges::find_if(parts_.begin() + 1, parts_.end(),
                                          [&](const DataPart& part) { return part.order.first_epoch() >= epochs; });
  const SequenceOrder& order = (after - 1)->order;
  return order.first_batch() + (epochs - order.first_epoch()) * order.batches_per_epoch();
}

StepBatch BatchLoader::load(std::int64_t index) const {
  const DataPart& part = part_of(index);
  StepBatch batch = make_batch(num_micro_batches_, micro_batch_size_, seq_len_);
  for (std::int64_t s = 0; s < num_micro_batches_ * micro_batch_size_; ++s) {
    part.dataset.read(part.order.window(index, first_slot_ + s), row(batch.tokens, s, seq_len_),
                      row(batch.targets, s, seq_len_));
  }
  return batch;
}

StepBatch BatchLoader::load_first(std::int64_t index, std::int64_t ignore_index) const {
  const DataPart& part = part_of(index);
  StepBatch batch = make_batch(1, micro_batch_size_, seq_len_);
  for (std::int64_t s = 0; s < micro_batch_size_; ++s) {
    part.dataset.read(part.order.window(index, first_slot_ + s), row(batch.tokens, s, seq_len_),
                      row(batch.targets, s, seq_len_));
  }
  if (first_slot_ > 0) std::ranges::fill(batch.targets, static_cast<std::int32_t>(ignore_index));
  return batch;
}

std::uint64_t BatchLoader::global_digest(std::int64_t index) const {
  const DataPart& part = part_of(index);
  std::uint64_t digest = 0;
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(seq_len_)), targets(inputs.size());
  for (std::int64_t slot = 0; slot < global_batch_size_; ++slot) {
    part.dataset.read(part.order.window(index, slot), inputs, targets);
    digest = hash_bytes(inputs.data(), inputs.size() * sizeof(std::int32_t), digest);
    digest = hash_bytes(targets.data(), targets.size() * sizeof(std::int32_t), digest);
  }
  return digest;
}

EvaluationLoader::EvaluationLoader(TokenDataset dataset, const BatchConfig& batch, const ResolvedBatch& resolved,
                                   const ModelConfig& model, std::int64_t ignore_index, int dp_rank)
    : dataset_(std::move(dataset)),
      global_batch_size_(batch.global_batch_size),
      micro_batch_size_(batch.micro_batch_size),
      seq_len_(model.seq_len),
      num_micro_batches_(resolved.micro_batches_per_rank),
      first_slot_(dp_rank * resolved.micro_batches_per_rank * batch.micro_batch_size),
      ignore_index_(ignore_index) {}

std::int64_t EvaluationLoader::num_batches(std::int64_t limit) const {
  const std::int64_t all = (dataset_.num_sequences() + global_batch_size_ - 1) / global_batch_size_;
  return limit > 0 ? std::min(limit, all) : all;
}

StepBatch EvaluationLoader::load(std::int64_t index) const {
  StepBatch batch = make_batch(num_micro_batches_, micro_batch_size_, seq_len_);
  for (std::int64_t s = 0; s < num_micro_batches_ * micro_batch_size_; ++s) {
    const std::int64_t window = index * global_batch_size_ + first_slot_ + s;
    if (window < dataset_.num_sequences()) {
      dataset_.read(window, row(batch.tokens, s, seq_len_), row(batch.targets, s, seq_len_));
    } else {
      std::ranges::fill(row(batch.targets, s, seq_len_), static_cast<std::int32_t>(ignore_index_));  // tokens stay 0
    }
  }
  return batch;
}

}  // namespace tessera
