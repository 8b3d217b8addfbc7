// A Hugging Face folder as a run directory: a job file to begin with, a checkpoint of weights alone, the tokenizer (docs/huggingface.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "runtime/config/huggingface_config.h"

namespace tessera {

struct ImportedModel {
  HuggingFaceLayout layout = HuggingFaceLayout::kGpt2;
  std::int64_t num_parameters = 0;
  std::uint64_t root_hash = 0;
  std::vector<std::string> tokenizer_files;
  std::string tokenizer;  // the one of them that the job names, "" where none loads
  std::vector<std::string> notes;
};

// The job file of an import: the model, and placeholders for what the user has to choose. tokenizer: a path, or "".
std::string imported_job_text(const ModelConfig& model, const std::string& source, const std::string& run_directory,
                              const std::string& tokenizer);

// Reads and checks config.json of a folder.
HuggingFaceModel read_huggingface_folder(FileSystem& files, const std::string& folder);

// Fills `into`, an empty folder, which will be called run_directory; a few MiB are in memory at a time. CheckpointError for what the folder has
// that is not implemented, missing or broken; `into` then holds anything.
ImportedModel import_huggingface(FileSystem& files, const std::string& folder, const std::string& into,
                                 const std::string& run_directory);

}  // namespace tessera
