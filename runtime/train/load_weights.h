// The weights of a checkpoint alone: what generation, evaluation and checkpoint.init_from take, from a checkpoint of a run or from an import.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/fields.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_check.h"
#include "checkpoint/tensor_slice.h"
#include "fsdp/sharded_model.h"
#include "runtime/config/job_config.h"

namespace tessera {

// What the weights of a model mean (model_fields), given those of a checkpoint: rotary positions have no parameters, so that seq_len may then
// be any and is taken for the saved one.
Fields expected_weight_fields(const ModelConfig& model, const Fields& saved);
// Its parameters, without optimizer state.
std::vector<ExpectedTensor> expected_weights(const ModelSpec& model);
// Where this rank's shards want theirs.
std::vector<TargetSlice> weight_targets(const ShardedModel& model);

// Fills this rank's shards of `model` (described by `config`) from the checkpoint in `folder` (resolve_checkpoint), whatever layout saved it,
// reading and checking only the blocks they lie in; optimizer state stays unread. Returns the manifest.
// Not collective: where several ranks load, the caller lets them agree on errors (run_agreed). CheckpointError where the checkpoint is of
// another model, naming every field and tensor that differs, or a block is damaged; the shards are then undefined.
Manifest load_weights(FileSystem& files, const std::string& folder, const ModelConfig& config, ShardedModel& model,
                      StreamView compute);

}  // namespace tessera
