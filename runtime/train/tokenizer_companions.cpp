#include "runtime/train/tokenizer_companions.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/train/json_field.h"

namespace tessera {
namespace {

constexpr std::uint64_t kMostCompanionBytes = std::uint64_t{16} << 20;

// A token is its text, or an object with it.
void read_end_of_text(const JsonField& root, const std::string& path, TokenizerCompanions& companions) {
  if (companions.end_of_text || !root.has("eos_token")) return;
  const JsonField token = root.at("eos_token");
  companions.end_of_text = token.value().is_object() ? token.at("content").text() : token.text();
  companions.end_source = path;
}

void read_stop_tokens(const JsonField& root, TokenizerCompanions& companions) {
  if (!root.has("eos_token_id")) return;
  const JsonField ids = root.at("eos_token_id");
  const auto add = [&](const JsonField& id) {
    if (id.value() != -1) companions.stop_tokens.push_back(id.id());  // -1 is an old way to say that there is none
  };
  if (!ids.value().is_array()) return add(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) add(ids.at(i));
}

}  // namespace

const std::vector<std::string>& companion_names() {
  static const std::vector<std::string> names = {"tokenizer_config.json", "special_tokens_map.json",
                                                 "generation_config.json"};
  return names;
}

TokenizerCompanions read_companions(const std::string& folder) {
  TokenizerCompanions companions;
  for (const std::string& name : companion_names()) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) continue;
    companions.files.push_back(path);
    const nlohmann::json json = parse_json(read_text_file(path, kMostCompanionBytes), path);
    const JsonField root(json, path, "");
    root.check_object();
    if (name == "generation_config.json") {
      read_stop_tokens(root, companions);
    } else {
      read_end_of_text(root, path, companions);
      if (name == "tokenizer_config.json") companions.add_bos_token = root.flag_or("add_bos_token", false);
    }
  }
  return companions;
}

}  // namespace tessera
