#include "tools/data_show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/train/foreign_format.h"
#include "runtime/train/token_data.h"
#include "runtime/train/tokenizer.h"
#include "tools/output_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// What data prepare left beside the file.
std::string tokenizer_beside(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code ignored;
  for (const std::string_view name : {kTokenizerName, kJsonTokenizerName}) {
    if (fs::is_regular_file(folder / name, ignored)) return (folder / name).string();
  }
  std::ifstream in(folder / "dataset.json");
  const auto dataset = nlohmann::json::parse(in, nullptr, false);
  return dataset.is_object() && dataset.value("tokenizer", nlohmann::json()) == "bytes" ? "bytes" : "";
}

// UTF-8 as it is, line ends and tabs too; every other control character and stray byte as \xNN.
std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    const auto c = static_cast<std::uint8_t>(text[0]);
    const bool c1 = length == 2 && c == 0xc2 &&
                    static_cast<std::uint8_t>(text[1]) < 0xa0;  // U+0080 to U+009F: control characters too
    if (length == 0 || c1 || c == 0x7f || (c < 0x20 && c != '\n' && c != '\t')) {
      for (std::size_t i = 0; i < std::max<std::size_t>(length, 1); ++i)
        result += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[i]));
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

}  // namespace

TokenFileSummary summarize_token_file(const std::string& path, const std::string& tokenizer, std::int64_t head) {
  const TokenFile file = TokenFile::open(path);
  TokenFileSummary summary;
  summary.path = path;
  summary.format = file.format();
  summary.num_bytes = file.num_bytes();
  summary.num_tokens = file.num_tokens();
  std::vector<bool> seen;
  std::vector<std::uint32_t> large;  // ids too large for a table of flags: those of a damaged u32 file
  constexpr std::uint32_t table_size = 1U << 24;
  file.for_blocks([&](std::int64_t /*first*/, std::span<const std::uint32_t> tokens) {
    for (const std::uint32_t id : tokens) {
      summary.largest_id = std::max(summary.largest_id, id);
      if (id >= table_size) {
        large.push_back(id);
        continue;
      }
      if (id >= seen.size()) seen.resize(id + 1, false);
      summary.num_distinct += seen[id] ? 0 : 1;
      seen[id] = true;
    }
  });
  std::sort(large.begin(), large.end());
  summary.num_distinct += std::unique(large.begin(), large.end()) - large.begin();
  summary.first.resize(static_cast<std::size_t>(std::min(head, file.num_tokens())));
  file.read(0, summary.first);
  summary.tokenizer = tokenizer.empty() ? tokenizer_beside(path) : tokenizer;
  if (!summary.tokenizer.empty()) summary.text = load_tokenizer(summary.tokenizer)->decode(summary.first);
  return summary;
}

std::string to_text(const TokenFileSummary& summary) {
  std::string text = fmt::format(
      "{}: {}, {} tokens, {} bytes\nlargest id {}, {} different ids (a job needs model.vocab_size of at least {})\n",
      summary.path, summary.format, summary.num_tokens, summary.num_bytes, summary.largest_id, summary.num_distinct,
      std::uint64_t{summary.largest_id} + 1);
  text += fmt::format("first {} tokens: {}\n", summary.first.size(), fmt::join(summary.first, " "));
  if (!summary.tokenizer.empty())
    text += fmt::format("as text ({}):\n{}\n", summary.tokenizer, printable(summary.text));
  return text;
}

std::string to_json(const TokenFileSummary& summary) {
  nlohmann::ordered_json object{
      {"path", summary.path},         {"format", summary.format},         {"bytes", summary.num_bytes},
      {"tokens", summary.num_tokens}, {"largest_id", summary.largest_id}, {"distinct_ids", summary.num_distinct},
      {"first", summary.first}};
  if (!summary.tokenizer.empty()) {
    object["tokenizer"] = summary.tokenizer;
    object["text"] = summary.text;
  }
  // Tokens may end inside a character: the replacement character stands for what is no UTF-8.
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tessera
