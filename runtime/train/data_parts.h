// The files that a run reads, where they change while it lasts: files that were appended since a checkpoint join when its epoch ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/training_state.h"
#include "runtime/config/job_config.h"
#include "runtime/train/token_data.h"

namespace tessera {

// A set of files and their order, from batch order.first_batch() of the run on.
struct DataPart {
  TokenDataset dataset;
  SequenceOrder order;
  std::uint64_t order_digest = 0;  // of what decides which sequences batch n holds
};

// Names, sizes and formats of the files, and what the first, the middle and the last window hold.
std::uint64_t content_digest(const TokenDataset& dataset, std::int64_t seq_len);

// DataError where an epoch is smaller than a batch.
DataPart make_data_part(TokenDataset dataset, const JobConfig& config, std::int64_t first_batch,
                        std::int64_t first_epoch);

struct DataContinuation {
  std::vector<DataPart> parts;        // of the batches from the cursor's next on, ascending; none where refused
  std::vector<std::string> appended;  // files that are new and join
  std::vector<std::string> refused;   // what of the cursor's files is not as it was, a line each
};

// What of the cursor's files is not where it was, by names and sizes alone, whatever order they are read in; a line each.
std::vector<std::string> missing_files(const DataCursor& saved, const TokenDataset& now);

// How a run at `saved` goes on with the files there are now. They must hold the cursor's own, in their order, each in the same entry of data.train;
// others may stand between and behind them. Those join with the first epoch that begins at or after the cursor; until then the old ones make the
// batches. A run of one batch (run.overfit_one_batch) takes none in.
DataContinuation continue_data(const DataCursor& saved, const TokenDataset& now, const JobConfig& config);

}  // namespace tessera
