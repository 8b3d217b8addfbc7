// The micro-batches of one rank in one step. Which sequences they are depends on the global batch alone: micro-batch i of the global list holds
// sequences i·b …, lane l micro-batches l·A …, dp rank d lanes d·lanes/dp … .
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/load.h"
#include "runtime/device/tensor_view.h"
#include "runtime/train/data_parts.h"
#include "runtime/train/token_data.h"

namespace tessera {

// Token ids of a rank's micro-batches: [num_micro_batches, micro_batch_size, seq_len].
struct StepBatch {
  std::int64_t micro_batch_size = 0, seq_len = 0;
  std::vector<std::int32_t> tokens, targets;

  std::int64_t num_micro_batches() const {
    return static_cast<std::int64_t>(tokens.size()) / (micro_batch_size * seq_len);
  }
  ConstTensorView micro_tokens(int micro) const { return view(tokens, micro); }
  ConstTensorView micro_targets(int micro) const { return view(targets, micro); }
  // Targets that are not ignore_index.
  std::int64_t num_targets(std::int64_t ignore_index) const;
  // A hash of the token ids, for tests.
  std::uint64_t digest() const;

 private:
  ConstTensorView view(const std::vector<std::int32_t>& ids, int micro) const {
    return {ids.data() + micro * micro_batch_size * seq_len, {micro_batch_size, seq_len}, DType::kInt32};
  }
};

class BatchLoader {
 public:
  BatchLoader(TokenDataset dataset, SequenceOrder order, const BatchConfig& batch, const ResolvedBatch& resolved,
              std::int64_t seq_len, int dp_rank);
  // parts: ascending, of one batch on and to the end of the run; at least one.
  BatchLoader(std::vector<DataPart> parts, const BatchConfig& batch, const ResolvedBatch& resolved,
              std::int64_t seq_len, int dp_rank);

  // This rank's part of global batch `index` (0 …).
  StepBatch load(std::int64_t index) const;
  // The first micro-batch of this rank's part. Where it is not the first of the global batch, its targets are all ignored.
  StepBatch load_first(std::int64_t index, std::int64_t ignore_index) const;
  // A hash of the token ids of all ranks' parts, the same on every rank and in every layout.
  std::uint64_t global_digest(std::int64_t index) const;
  // The first batch that there is: files that were read before may be gone.
  std::int64_t first_batch() const { return parts_.front().order.first_batch(); }
  // The part that global batch `index` is read from.
  const DataPart& part_of(std::int64_t index) const;
  std::int64_t epoch_of(std::int64_t index) const { return part_of(index).order.epoch_of(index); }
  // The batch that epoch `epochs` begins with: so many batches a run of that many epochs has.
  std::int64_t batches_before_epoch(std::int64_t epochs) const;

 private:
  std::vector<DataPart> parts_;
  std::int64_t global_batch_size_, micro_batch_size_, seq_len_, num_micro_batches_, first_slot_;
};

// Validation: global batches of consecutive windows in file order; what is missing in the last is filled with ignored sequences.
class EvaluationLoader {
 public:
  EvaluationLoader(TokenDataset dataset, const BatchConfig& batch, const ResolvedBatch& resolved,
                   const ModelConfig& model, std::int64_t ignore_index, int dp_rank);
  // Global batches in one evaluation: all, or at most `limit` where limit > 0.
  std::int64_t num_batches(std::int64_t limit) const;
  StepBatch load(std::int64_t index) const;

 private:
  TokenDataset dataset_;
  std::int64_t global_batch_size_, micro_batch_size_, seq_len_, num_micro_batches_, first_slot_, ignore_index_;
};

}  // namespace tessera
