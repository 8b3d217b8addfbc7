// Every key of a job file, as data. One table drives loading, hints, `config explain`, the JSON Schema and the YAML
// that is written back, so that they cannot disagree. A new key is one row here and one field in job_config.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/config/job_config.h"

namespace tessera::config {

// Where a row's value lives.
using FieldRef =
    std::variant<std::int64_t*, std::uint64_t*, std::optional<std::int64_t>*, double*, std::optional<double>*, bool*,
                 std::string*, std::vector<double>*, std::vector<std::string>*, std::vector<DataSource>*,
                 std::vector<OptimizerGroup>*, std::vector<ChaosFault>*, std::optional<StepRange>*>;
// Finds it in the struct that holds it. monostate: the key has no value yet.
using Accessor = std::variant<std::monostate, FieldRef (*)(JobConfig&), FieldRef (*)(DataSource&),
                              FieldRef (*)(OptimizerGroup&), FieldRef (*)(ChaosFault&)>;

enum class KeyKind {
  kInteger,   // a decimal integer, or one of the row's words
  kNumber,    // a finite decimal number, or one of the row's words
  kBool,      // true or false, or one of the row's words
  kWord,      // one of the row's words
  kText,      // any text that `accepts` likes
  kByteSize,  // bytes with an optional KiB, MiB, GiB, TiB
  kNumbers,   // a list of as many numbers as the default has
  kTexts,     // a list of texts
  kSources,   // data.train
  kGroups,    // optimizer.groups
  kFaults,    // chaos
  kSteps,     // [first, last]
  kAnything,  // a key whose feature is not available yet
};

struct Range {
  double min = 0, max = 0;
  bool above_min = false;  // min itself is outside
  bool below_max = false;  // max itself is outside
  bool contains(double value) const;
};

// What another framework calls the same thing.
struct ForeignName {
  std::string_view name;   // lower case, underscores
  std::string_view where;  // "nanoGPT, Hugging Face"
};

struct KeyRow {
  std::string_view path;  // "optimizer.learning_rate"; "[]" stands for the items of a list: "data.train[].weight"
  KeyKind kind = KeyKind::kText;
  Accessor field = {};
  Range range = {};
  std::vector<std::string_view> words = {};
  std::string_view unset = {};  // what the absent key means, where the default is not a value; "required"
  std::string_view meaning = {};
  std::string_view unit = {};
  std::vector<ForeignName> foreign = {};

  // The feature comes later: the key is refused whenever it is set.
  bool later = false;
  // Values whose feature is here, where some is not; others are "not available yet".
  std::vector<std::string_view> words_now = {};
  std::optional<double> only_now = {};

  // Text and byte sizes: "" or what was expected instead.
  std::string_view (*accepts)(std::string_view) = nullptr;
  // The key has an effect only under a condition on another key, `decider`.
  std::string_view decider = {};
  std::string_view needs = {};
  bool (*applies)(const JobConfig&) = nullptr;
  // What an absent optional value amounts to, where that is known.
  std::optional<std::int64_t> (*fallback)(const JobConfig&) = nullptr;

  bool required() const { return unset == "required"; }
  bool is_item() const { return path.find("[]") != std::string_view::npos; }
  std::string_view section() const;  // "optimizer"; "" for a key of the root; "data.train[]" for items
  std::string_view name() const;     // "learning_rate"
  // "an integer from 1 to 1000000", "a number above 0", "auto, true or false", …
  std::string expected() const;
  // The default as a user would write it, or what its absence means.
  std::string default_text() const;
};

struct Section {
  std::string_view name;
  std::string_view meaning;
  std::vector<ForeignName> foreign = {};
};

const std::vector<Section>& sections();
const std::vector<KeyRow>& key_rows();
// nullptr where there is none. The path is without indices: "data.train[].weight".
const KeyRow* find_row(std::string_view path);
bool is_section(std::string_view name);

// "a, b or c".
std::string join_words(const std::vector<std::string_view>& words);

}  // namespace tessera::config
