// The files of a tokenizer, which travel with a model's weights from and to Hugging Face folders.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera {

// Those that are there, in a fixed order: tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocab.json, merges.txt,
// tokenizer.model, generation_config.json.
std::vector<std::string> tokenizer_files_in(FileSystem& files, const std::string& folder);
// Durable when it returns, in pieces of a few MiB.
void copy_file(FileSystem& files, const std::string& from, const std::string& to);

// A file to copy, and its name in a Hugging Face folder.
struct FileToCopy {
  std::string path, name;
  friend bool operator==(const FileToCopy&, const FileToCopy&) = default;
};
// Those of a run: of RUN/tokenizer where it is, else of the job's data.tokenizer, as it is written or relative to the run, with the known files
// beside it; none for `bytes`.
std::vector<FileToCopy> tokenizer_files_of_run(FileSystem& files, const std::string& run_directory,
                                               const std::string& job_tokenizer);

}  // namespace tessera
