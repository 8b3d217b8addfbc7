#include "runtime/train/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/train/byte_alphabet.h"
#include "runtime/train/json_field.h"

namespace tessera {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;  // the largest known are some 30 MB

using Ids = std::unordered_map<std::string, std::uint32_t>;  // by the token's text

// Absent, null and "" are all "none".
bool is_empty(const JsonField& object, const char* member) {
  return !object.has(member) || (object.at(member).value().is_string() && object.at(member).text().empty());
}

void refuse_unless_none(const JsonField& object, const char* member) {
  if (!is_empty(object, member)) object.at(member).refuse("null: this is not supported");
}

std::string type_of(const JsonField& object) {
  return object.at("type").text();
}

// model ------------------------------------------------------------------------------------------------------------

void check_model_options(const JsonField& model) {
  model.check_object();
  // Files of older releases do not name the type of their model.
  if (model.has("type") && type_of(model) != "BPE") model.at("type").refuse("\"BPE\"");
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout") && model.at("dropout").value() != 0)
    model.at("dropout").refuse("null: this is not supported");
  refuse_unless_none(model, "continuing_subword_prefix");
  refuse_unless_none(model, "end_of_word_suffix");
  if (model.flag_or("byte_fallback", false)) model.at("byte_fallback").refuse("false: this is not supported");
  // unk_token and fuse_unk never act: every byte has a token, see check_alphabet.
}

std::vector<std::string> read_vocabulary(const JsonField& vocab) {
  vocab.check_object();
  const std::size_t size = vocab.size();
  std::vector<std::string> tokens(size);
  std::vector<bool> seen(size, false);
  for (const auto& [text, value] : vocab.value().items()) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= size) {
      vocab.fail(fmt::format("\"{}\" is {}, expected an id below {}, the number of tokens", text, value.dump(), size));
    }
    const auto id = value.get<std::size_t>();
    if (seen[id]) vocab.fail(fmt::format("\"{}\" and \"{}\" have the id {}", tokens[id], text, id));
    seen[id] = true;
    tokens[id] = text;
  }
  return tokens;
}

void check_alphabet(const JsonField& vocab, const Ids& ids) {
  for (int byte = 0; byte < 256; ++byte) {
    if (const std::string text = alphabet_character(static_cast<unsigned char>(byte)); !ids.contains(text)) {
      vocab.fail(fmt::format("has no token \"{}\" for byte 0x{:02x}, expected one for each byte (byte-level BPE)", text,
                             byte));
    }
  }
}

// "left right", or ["left", "right"].
std::pair<std::string, std::string> read_merge(const JsonField& merge) {
  if (merge.value().is_array()) {
    if (merge.size() != 2) merge.refuse("two tokens");
    return {merge.at(std::size_t{0}).text(), merge.at(1).text()};
  }
  const std::string& text = merge.text();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    merge.refuse("two tokens with a space between");
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<BpeMerge> read_merges(const JsonField& merges, const Ids& ids) {
  merges.check_array();
  std::vector<BpeMerge> result;
  result.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const JsonField merge = merges.at(i);
    // What merges.txt begins with.
    if (merge.value().is_string() && merge.text().starts_with("#version")) continue;
    const auto [left, right] = read_merge(merge);
    const auto find = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end()) merge.fail(fmt::format("\"{}\" is not in model.vocab", token));
      return found->second;
    };
    result.push_back({find(left), find(right), find(left + right)});
  }
  return result;
}

// added_tokens -----------------------------------------------------------------------------------------------------

std::vector<AddedToken> read_added_tokens(const JsonField& list, Ids& ids, std::size_t vocabulary_size) {
  list.check_array();
  std::vector<AddedToken> tokens;
  std::uint32_t next = static_cast<std::uint32_t>(vocabulary_size);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonField entry = list.at(i);
    entry.only({"id", "content", "special", "lstrip", "rstrip", "normalized", "single_word"});
    AddedToken token{.id = entry.at("id").id(),
                     .content = entry.at("content").text(),
                     .special = entry.at("special").flag(),
                     .lstrip = entry.at("lstrip").flag(),
                     .rstrip = entry.at("rstrip").flag(),
                     .normalized = entry.at("normalized").flag(),
                     .single_word = entry.at("single_word").flag()};
    if (token.content.empty()) entry.at("content").refuse("at least one character");
    const auto [known, is_new] = ids.emplace(token.content, next);
    if (known->second != token.id) {
      entry.at("id").fail(fmt::format("\"{}\" has the id {}, expected {}: {}", token.content, token.id, known->second,
                                      is_new ? "new tokens follow the others without a gap" : "its id in model.vocab"));
    }
    if (is_new) {
      ++next;
    } else if (token.id >= vocabulary_size) {
      entry.at("content").fail(fmt::format("\"{}\" comes twice", token.content));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// normalizer, pre_tokenizer, post_processor, decoder ---------------------------------------------------------------

bool read_normalizer(const JsonField& normalizer) {
  if (normalizer.is_null()) return false;
  if (type_of(normalizer) != "NFC") normalizer.at("type").refuse("null or \"NFC\"");
  normalizer.only({"type"});
  return true;
}

void read_byte_level(const JsonField& byte_level, bool after_split, TokenizerFile& file) {
  byte_level.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool prefix = byte_level.at("add_prefix_space").flag(), pattern = byte_level.flag_or("use_regex", true);
  if (after_split && pattern) byte_level.at("use_regex").refuse("false behind a Split");
  if (after_split && prefix) byte_level.at("add_prefix_space").refuse("false behind a Split");
  if (!after_split && !pattern) byte_level.at("use_regex").refuse("true where nothing else cuts words");
  file.add_prefix_space = prefix;
}

void read_split(const JsonField& split, TokenizerFile& file) {
  if (type_of(split) != "Split") split.at("type").refuse("\"Split\" (then \"ByteLevel\")");
  split.only({"type", "pattern", "behavior", "invert"});
  if (split.at("behavior").text() != "Isolated") split.at("behavior").refuse("\"Isolated\"");
  if (split.flag_or("invert", false)) split.at("invert").refuse("false");
  split.at("pattern").only({"Regex"});
  const JsonField expression = split.at("pattern").at("Regex");
  const auto pattern = find_word_pattern(expression.text());
  if (!pattern) {
    expression.fail(
        fmt::format("found {}, expected the pattern of GPT-2, Llama 3 or Qwen2 to the letter", expression.text()));
  }
  file.pattern = *pattern;
}

void read_pre_tokenizer(const JsonField& pre_tokenizer, TokenizerFile& file) {
  if (pre_tokenizer.is_null()) pre_tokenizer.refuse("\"ByteLevel\", or a Sequence of a Split and a ByteLevel");
  const std::string type = type_of(pre_tokenizer);
  if (type == "ByteLevel") return read_byte_level(pre_tokenizer, false, file);
  if (type != "Sequence") pre_tokenizer.at("type").refuse("\"ByteLevel\", or a Sequence of a Split and a ByteLevel");
  pre_tokenizer.only({"type", "pretokenizers"});
  const JsonField steps = pre_tokenizer.at("pretokenizers");
  steps.check_array();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const JsonField step = steps.at(i);
    if (i == 0) {
      read_split(step, file);
    } else if (i > 1 || type_of(step) != "ByteLevel") {
      step.at("type").refuse(i == 1 ? "\"ByteLevel\"" : "nothing behind a Split and a ByteLevel");
    } else {
      read_byte_level(step, true, file);
    }
  }
  if (steps.size() < 2) steps.refuse("a Split and a ByteLevel");
}

// Tokens before the text are of use; tokens behind it would end every prompt.
void read_template(const JsonField& processor, const Ids& ids, TokenizerFile& file) {
  const JsonField single = processor.at("single");
  single.check_array();
  bool behind_text = false;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const JsonField piece = single.at(i);
    piece.only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      if (behind_text) piece.refuse("one Sequence");
      behind_text = true;
      continue;
    }
    const JsonField name = piece.at("SpecialToken").at("id");
    if (behind_text) piece.fail(fmt::format("{} behind the text is not supported", name.text()));
    const JsonField list = processor.at("special_tokens").at(name.text().c_str()).at("ids");
    list.check_array();
    for (std::size_t n = 0; n < list.size(); ++n)
      file.text_prefix.push_back(list.at(n).id(static_cast<std::uint32_t>(ids.size())));
  }
  if (!behind_text) single.refuse("a Sequence");
}

void read_post_processor(const JsonField& processor, const Ids& ids, TokenizerFile& file, bool inside = false) {
  if (processor.is_null()) return;
  const std::string type = type_of(processor);
  if (type == "ByteLevel") return;  // moves offsets, which we do not give
  if (type == "TemplateProcessing") return read_template(processor, ids, file);
  if (type != "Sequence" || inside)
    processor.at("type").refuse("null, \"ByteLevel\", \"TemplateProcessing\" or a Sequence of those");
  const JsonField steps = processor.at("processors");
  steps.check_array();
  for (std::size_t i = 0; i < steps.size(); ++i) read_post_processor(steps.at(i), ids, file, true);
}

void check_decoder(const JsonField& decoder) {
  if (decoder.is_null()) decoder.refuse("\"ByteLevel\"");
  if (type_of(decoder) != "ByteLevel") decoder.at("type").refuse("\"ByteLevel\"");
}

// A member that may be left out.
JsonField optional_member(const JsonField& object, const char* name) {
  static const nlohmann::json null;
  return object.has(name) ? object.at(name) : JsonField(null, "", name);
}

}  // namespace

std::int64_t TokenizerFile::num_tokens() const {
  const auto size = static_cast<std::int64_t>(vocabulary.size());
  return size + std::ranges::count_if(added_tokens, [&](const AddedToken& token) { return token.id >= size; });
}

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& path) {
  const nlohmann::json json = parse_json(text, path);
  const JsonField root(json, path, "");
  root.check_object();
  if (!root.has("model")) root.at("model").refuse("an object");  // another file's JSON
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  refuse_unless_none(root, "truncation");
  refuse_unless_none(root, "padding");
  TokenizerFile file;
  const JsonField model = root.at("model");
  check_model_options(model);
  file.ignore_merges = model.flag_or("ignore_merges", false);
  file.vocabulary = read_vocabulary(model.at("vocab"));
  Ids ids;
  ids.reserve(file.vocabulary.size());
  for (std::uint32_t id = 0; id < file.vocabulary.size(); ++id) ids.emplace(file.vocabulary[id], id);
  check_alphabet(model.at("vocab"), ids);
  file.merges = read_merges(model.at("merges"), ids);
  if (root.has("added_tokens"))
    file.added_tokens = read_added_tokens(root.at("added_tokens"), ids, file.vocabulary.size());
  file.normalize_nfc = read_normalizer(optional_member(root, "normalizer"));
  read_pre_tokenizer(root.at("pre_tokenizer"), file);
  read_post_processor(optional_member(root, "post_processor"), ids, file);
  check_decoder(root.at("decoder"));
  return file;
}

TokenizerFile read_tokenizer_file(const std::string& path) {
  return parse_tokenizer_file(read_text_file(path, kMostBytes), path);
}

}  // namespace tessera
