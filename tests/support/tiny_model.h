// A model described by hand: enough for layouts and schedules, which never look inside.
#pragma once

#include <fmt/format.h>

#include "runtime/program/parameter_spec.h"

namespace tessera::test {

// Embedding (a [vocab, hidden] table, tied to the head), blocks of one [hidden, hidden] matrix and one [hidden] gain each, a final norm.
inline ModelSpec tiny_model(int num_blocks, std::int64_t vocab = 7, std::int64_t hidden = 5) {
  ModelSpec model;
  model.parameters.push_back(
      {.name = "embedding.token.weight", .shape = {vocab, hidden}, .init_std = 0.02, .tied = true});
  model.segments.push_back({.name = "embedding", .parameters = {0}});
  for (int b = 0; b < num_blocks; ++b) {
    const int first = static_cast<int>(model.parameters.size());
    model.parameters.push_back(
        {.name = fmt::format("block.{}.weight", b), .shape = {hidden, hidden}, .init_std = 0.02});
    model.parameters.push_back(
        {.name = fmt::format("block.{}.gain", b), .shape = {hidden}, .init = InitKind::kOne, .decay = false});
    model.segments.push_back({.name = fmt::format("block.{}", b), .parameters = {first, first + 1}});
  }
  const int norm = static_cast<int>(model.parameters.size());
  model.parameters.push_back({.name = "final_norm.weight", .shape = {hidden}, .init = InitKind::kOne, .decay = false});
  model.segments.push_back({.name = "head", .parameters = {norm, 0}});
  return model;
}

}  // namespace tessera::test
