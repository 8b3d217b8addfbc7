#include "launcher/generate_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "checkpoint/catalog.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "runtime/base/error.h"
#include "runtime/train/saved_job.h"
#include "runtime/train/tokenizer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

void check_options(const GenerateOptions& options) {
  if (options.prompts.empty() && options.prompt_files.empty())
    throw ConfigError("generate: no prompt", "--prompt TEXT, or --prompt-file FILE (- is standard input)");
  if (std::ranges::count(options.prompt_files, "-") > 1)
    throw ConfigError("--prompt-file: standard input can be read only once");
  if (options.max_tokens < 1)
    throw ConfigError(fmt::format("--max-tokens {}, expected at least 1", options.max_tokens));
  check_sampling(options.sampling);
}

// Whoever pipes a line in means the line without its end.
std::string read_prompt(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  } else {
    std::error_code error;
    if (!fs::exists(path, error)) throw DataError(fmt::format("--prompt-file {}: no such file", path));
    if (fs::is_directory(path, error)) throw DataError(fmt::format("--prompt-file {}: is a directory", path));
    std::ifstream in(path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!in.good() && !in.eof()) throw DataError(fmt::format("--prompt-file {}: cannot read", path));
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::vector<std::uint32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt, std::size_t number) {
  std::vector<std::uint32_t> tokens = tokenizer.text_prefix();
  const std::vector<std::uint32_t> text = tokenizer.encode(prompt);
  // Whoever spells the beginning of a text out does not mean it twice.
  const bool spelled_out =
      !tokens.empty() && text.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), text.begin());
  if (spelled_out) tokens.clear();
  tokens.insert(tokens.end(), text.begin(), text.end());
  if (tokens.empty())
    throw ConfigError(fmt::format("prompt {}: '{}' makes no token with {}", number, prompt, tokenizer.name()),
                      "at least one character");
  return tokens;
}

}  // namespace

std::string find_tokenizer(const std::string& given, const std::string& configured, const std::string& run_directory) {
  if (!given.empty()) return given;
  std::error_code error;
  const fs::path run(run_directory);
  if (configured == "bytes" || (!configured.empty() && fs::exists(configured, error))) return configured;
  if (!configured.empty() && fs::path(configured).is_relative() && fs::exists(run / configured, error))
    return (run / configured).string();
  // An import that was moved has the file that its job names; one whose job names none has what did not load, and says why.
  for (const fs::path& name :
       {fs::path(configured).filename(), fs::path("tokenizer.json"), fs::path("tokenizer.model")}) {
    if (!name.empty() && fs::exists(run / "tokenizer" / name, error)) return (run / "tokenizer" / name).string();
  }
  const std::string found = configured.empty() ? fmt::format("{}: no tokenizer", run_directory)
                                               : fmt::format("data.tokenizer: {} is not there", configured);
  throw ConfigError(found, "--tokenizer FILE: what made the tokens that the model was trained on");
}

PreparedGenerate make_generate_request(const GenerateOptions& options) {
  check_options(options);
  const auto files = make_posix_file_system();
  GenerateRequest request;
  request.folder = resolve_checkpoint(*files, options.checkpoint);
  const Manifest manifest = read_manifest(*files, request.folder);
  request.config = manifest.training.config;
  const JobConfig config = saved_job(manifest, request.folder);
  request.tokenizer = find_tokenizer(options.tokenizer, config.data.tokenizer, run_of_checkpoint(request.folder));
  auto tokenizer = load_tokenizer(request.tokenizer);
  check_vocabulary(*tokenizer, config.model.vocab_size);
  request.tokenizer_vocab_size = tokenizer->vocab_size();
  request.stop_tokens = tokenizer->stop_tokens();
  request.prompts = options.prompts;
  for (const std::string& path : options.prompt_files) request.prompts.push_back(read_prompt(path));
  for (std::size_t i = 0; i < request.prompts.size(); ++i)
    request.prompt_tokens.push_back(encode_prompt(*tokenizer, request.prompts[i], i + 1));
  return {std::move(request), std::move(tokenizer)};
}

// CBOR, since a path need not be UTF-8, as JSON has to be.
std::string GenerateRequest::encode() const {
  std::string bytes;
  nlohmann::json::to_cbor(nlohmann::json{{"folder", folder},
                                         {"config", config},
                                         {"tokenizer", tokenizer},
                                         {"tokenizer_vocab_size", tokenizer_vocab_size},
                                         {"stop_tokens", stop_tokens},
                                         {"prompt_tokens", prompt_tokens}},
                          bytes);
  return bytes;
}

GenerateRequest GenerateRequest::decode(const std::string& bytes) {
  const nlohmann::json json = nlohmann::json::from_cbor(bytes);
  GenerateRequest request;
  json.at("folder").get_to(request.folder);
  json.at("config").get_to(request.config);
  json.at("tokenizer").get_to(request.tokenizer);
  json.at("tokenizer_vocab_size").get_to(request.tokenizer_vocab_size);
  json.at("stop_tokens").get_to(request.stop_tokens);
  json.at("prompt_tokens").get_to(request.prompt_tokens);
  return request;
}

}  // namespace tessera
