// A valid job (model T) as text, and what the loader says about a changed one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/load.h"

namespace tessera::testing {

inline constexpr std::string_view kModelT =
    "run:\n"                    // 1
    "  steps: 10\n"             // 2
    "model:\n"                  // 3
    "  num_layers: 2\n"         // 4
    "  num_heads: 4\n"          // 5
    "  hidden_size: 32\n"       // 6
    "  seq_len: 16\n"           // 7
    "  vocab_size: 64\n"        // 8
    "data:\n"                   // 9
    "  train: [data/t.bin]\n"   // 10
    "batch:\n"                  // 11
    "  global_batch_size: 8\n"  // 12
    "  micro_batch_size: 2\n"   // 13
    "optimizer:\n"              // 14
    "  learning_rate: 1e-3\n"   // 15
    "reproducibility:\n"        // 16
    "  lanes: 4\n";             // 17

// Model T with the first `from` replaced by `to`.
inline std::string model_t_with(std::string_view from, std::string_view to) {
  std::string text(kModelT);
  const std::size_t at = text.find(from);
  if (at == std::string::npos) return "test is wrong: " + std::string(from);
  return text.replace(at, from.size(), to);
}

// Model T and more lines (from line 18).
inline std::string model_t_and(std::string_view more) {
  return std::string(kModelT) + std::string(more);
}

// The problems of a text, as printed.
inline std::vector<std::string> problems_of(std::string_view text, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> lines;
  for (const ConfigProblem& problem : check_config_text(text, "job.yaml", overrides).problems)
    lines.push_back(problem.line_text());
  return lines;
}

using Lines = std::vector<std::string>;

}  // namespace tessera::testing
