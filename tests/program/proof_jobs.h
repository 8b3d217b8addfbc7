// Jobs for proofs: programs of the builders, and programs written by hand.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/schedule.h"
#include "fsdp/units.h"
#include "parallel/mesh.h"
#include "runtime/program/proof.h"
#include "tests/support/tiny_model.h"

namespace tessera::test {

inline StepProgram training(int num_blocks, const ScheduleOptions& options = {}) {
  const ModelSpec model = tiny_model(num_blocks);
  return build_training_program(model, make_units(model, "block"), options);
}

inline std::vector<int> iota(int count, int first = 0, int stride = 1) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

inline std::vector<ProofGroup> groups_of(const MeshShape& mesh) {
  std::vector<ProofGroup> groups;
  for (const Group& group : canonical_groups(mesh)) groups.push_back({group.name(), group.members});
  return groups;
}

// The instruction at `from` moves to `to`, which is earlier; waits follow.
inline StepProgram move_earlier(StepProgram program, int from, int to) {
  auto& list = program.instructions;
  std::rotate(list.begin() + to, list.begin() + from, list.begin() + from + 1);
  for (Instruction& i : list) {
    for (int& wait : i.waits) wait = wait == from ? to : wait + (wait >= to && wait < from ? 1 : 0);
  }
  return program;
}

// One program after the other, all of the units and segments of the first.
inline StepProgram joined(StepProgram first, const std::vector<StepProgram>& others) {
  for (const StepProgram& other : others) {
    const int shift = static_cast<int>(first.instructions.size());
    for (Instruction i : other.instructions) {
      for (int& wait : i.waits) wait += shift;
      first.instructions.push_back(std::move(i));
    }
  }
  return first;
}

inline Instruction unshard(int unit, std::vector<int> waits = {}, const std::string& group = "dp:0") {
  return {.op = OpCode::kUnshard,
          .stream = StreamId::kGather,
          .unit = unit,
          .group = group,
          .phase = "forward",
          .waits = std::move(waits)};
}
inline Instruction reduce_gradient(int unit, std::vector<int> waits = {}, const std::string& group = "dp:0") {
  return {.op = OpCode::kReduce,
          .stream = StreamId::kReduce,
          .unit = unit,
          .group = group,
          .phase = "backward",
          .waits = std::move(waits)};
}
inline Instruction wait_unshard(int unit, int instruction) {
  return {.op = OpCode::kWaitUnshard, .unit = unit, .phase = "forward", .waits = {instruction}};
}
inline Instruction wait_reduce(int unit, int instruction) {
  return {.op = OpCode::kWaitReduce, .unit = unit, .phase = "backward", .waits = {instruction}};
}

inline StepProgram by_hand(std::vector<Instruction> instructions) {
  StepProgram program;
  program.unit_names = {"root", "block.0", "block.1"};
  program.instructions = std::move(instructions);
  return program;
}

using Lines = std::vector<std::string>;

}  // namespace tessera::test
