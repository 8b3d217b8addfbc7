// A checkpoint as a Hugging Face folder that transformers loads (docs/huggingface.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "runtime/config/huggingface_config.h"

namespace tessera {

inline constexpr std::uint64_t kDefaultMaxShardBytes = 5'000'000'000;

struct ExportedModel {
  HuggingFaceLayout layout = HuggingFaceLayout::kGpt2;
  std::string checkpoint;  // its folder
  std::int64_t step = 0;
  std::vector<std::string> weight_files, tokenizer_files;
  std::uint64_t bytes = 0;  // of weights
};

// checkpoint: a checkpoint's folder, or a run: its newest that is complete; of any layout, optimizer state stays unread. Fills `into`, an empty folder.
// CheckpointError where the model has no Hugging Face layout, naming the fields, or the checkpoint is damaged.
ExportedModel export_huggingface(FileSystem& files, const std::string& checkpoint, const std::string& into,
                                 std::uint64_t max_shard_bytes);

}  // namespace tessera
