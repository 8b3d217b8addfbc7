// What the files beside a tokenizer.json or a tokenizer.model say of its special tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct TokenizerCompanions {
  std::vector<std::string> files;          // those that are there
  std::optional<std::string> end_of_text;  // eos_token of tokenizer_config.json, else of special_tokens_map.json
  std::string end_source;                  // the file that says so
  std::vector<std::uint32_t> stop_tokens;  // eos_token_id of generation_config.json
  bool add_bos_token = false;              // of tokenizer_config.json: a text begins with the beginning of text
};

// Their names, as Hugging Face has them.
const std::vector<std::string>& companion_names();

// folder: of the tokenizer, "" for the working directory. DataError for a file that cannot be read as what it is.
TokenizerCompanions read_companions(const std::string& folder);

}  // namespace tessera
