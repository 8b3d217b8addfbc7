// checkpoint.init_from: the weights that a fresh run begins with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/rank_exchange.h"
#include "fsdp/sharded_model.h"
#include "runtime/config/job_config.h"

namespace tessera {

// Whether a path is that of a Hugging Face model: it holds config.json and nothing of ours.
bool is_huggingface_folder(FileSystem& files, const std::string& path);

// Collective. Fills the shards of `model` with the weights in config.checkpoint.init_from: a run, a checkpoint, an import or a Hugging Face folder. Each
// rank reads what its shards hold. agreed: runs a phase on every rank; where it throws on any, the same error leaves all (run_agreed).
// Returns the lines to say. CheckpointError, on all ranks alike, where the weights are of another model or do not load.
std::vector<std::string> init_from(FileSystem& files, RankExchange& ranks, const JobConfig& config, ShardedModel& model,
                                   StreamView compute, const std::function<void(const std::function<void()>&)>& agreed);

}  // namespace tessera
