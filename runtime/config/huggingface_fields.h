// The fields of config.json that are known, and what to do with each: data for huggingface_read.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/config/huggingface_config.h"

namespace tessera::config {

enum class FieldUse {
  kMapped,      // huggingface_read turns it into a key of the model section
  kIrrelevant,  // changes nothing that the model computes
  kFixed,       // one of a few values is what Tessera computes; others are not implemented
  kDropout,     // a chance of training: above 0 it is said that there is none
};

struct FieldRow {
  std::string_view name;
  FieldUse use = FieldUse::kIrrelevant;
  std::vector<std::string_view> values = {};  // of kFixed, as JSON
};

// nullptr: not known.
const FieldRow* find_field(HuggingFaceLayout layout, std::string_view name);

}  // namespace tessera::config
