// What `tessera generate` is to do, found out by one rank and sent to the others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/train/sampling.h"
#include "runtime/train/tokenizer.h"

namespace tessera {

struct GenerateOptions {
  std::string checkpoint;  // a checkpoint's folder, or a run: its newest that is complete
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_files;  // a prompt each, without its last line end; "-": standard input
  std::string tokenizer;                  // empty: the checkpoint's own, see find_tokenizer
  std::int64_t max_tokens = 128;          // for each prompt
  SamplingOptions sampling{.temperature = 0.8, .top_k = 50};
  bool json = false;
};

struct GenerateRequest {
  std::string folder;     // of the checkpoint
  std::string config;     // the job that it was saved by, as YAML
  std::string tokenizer;  // spec of load_tokenizer
  std::int64_t tokenizer_vocab_size = 0;
  std::vector<std::uint32_t> stop_tokens;
  std::vector<std::string> prompts;
  std::vector<std::vector<std::uint32_t>> prompt_tokens;  // as the model sees them
  friend bool operator==(const GenerateRequest&, const GenerateRequest&) = default;

  std::string encode() const;
  static GenerateRequest decode(const std::string& bytes);
};

struct PreparedGenerate {
  GenerateRequest request;
  std::unique_ptr<Tokenizer> tokenizer;
};

// CheckpointError where there is no checkpoint, ConfigError for the options, DataError for the tokenizer or a prompt that it cannot take.
PreparedGenerate make_generate_request(const GenerateOptions& options);

// The tokenizer of a checkpoint: `given` where it is not empty; else `configured` (data.tokenizer), as it is or, where it is not there, relative to
// the run; else of RUN/tokenizer, which an import leaves there, the file of that name, tokenizer.json or tokenizer.model. ConfigError where there is
// none.
std::string find_tokenizer(const std::string& given, const std::string& configured, const std::string& run_directory);

}  // namespace tessera
