#include "runtime/train/batch_loader.h"

#include <algorithm>
#include <span>

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
    : dataset_(std::move(dataset)),
      order_(order),
      global_batch_size_(batch.global_batch_size),
      micro_batch_size_(batch.micro_batch_size),
      seq_len_(seq_len),
      num_micro_batches_(resolved.micro_batches_per_rank),
      first_slot_(dp_rank * resolved.micro_batches_per_rank * batch.micro_batch_size) {}

StepBatch BatchLoader::load(std::int64_t index) const {
  StepBatch batch = make_batch(num_micro_batches_, micro_batch_size_, seq_len_);
  for (std::int64_t s = 0; s < num_micro_batches_ * micro_batch_size_; ++s) {
    dataset_.read(order_.window(index, first_slot_ + s), row(batch.tokens, s, seq_len_),
                  row(batch.targets, s, seq_len_));
  }
  return batch;
}

std::uint64_t BatchLoader::global_digest(std::int64_t index) const {
  std::uint64_t digest = 0;
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(seq_len_)), targets(inputs.size());
  for (std::int64_t slot = 0; slot < global_batch_size_; ++slot) {
    dataset_.read(order_.window(index, slot), inputs, targets);
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
