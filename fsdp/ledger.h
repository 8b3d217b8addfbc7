// The memory ledger: what a program's instructions take from the allocator and give back, read off the list before anything runs.
//
// It applies to each instruction the allocations and frees that ShardedUnit, the optimizer and the model's runner make there, at the allocator's
// granularity, so that its peaks are the allocator's own, byte for byte, in total and per category. Per element 4 bytes; with n shards of a unit
// whose flat parameter has F elements (fsdp/shard_layout.h):
//
//   at rest                parameters 4F/n, optimizer 8F/n (frozen units: none), workspace ModelSpec::constant_bytes
//   unshard … reshard      gathered + 4F, where n > 1
//   open gradient          gradients + 4F
//   first embedding backward of a lane: gradients + 4 × the tied matrix (its lookup segment)
//   merge lanes            the newest full gradient goes
//   reduce                 where n > 1: gradients + 4F/n, and this shard's part of a lookup segment
//   wait reduce            what was reduced goes: gradients 4F/n stay, from n = 1 the full gradient itself; `accumulate`: one shard of two
//   a segment              SegmentSpec's activations and workspace
//
// Not in it, nor in the allocator's figures: the code, token buffers, staging of communicators, and what the allocator holds beyond live bytes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fsdp/policy.h"
#include "runtime/device/memory_stats.h"
#include "runtime/program/parameter_spec.h"
#include "runtime/program/step_program.h"

namespace tessera {

using MemoryBytes = std::array<std::int64_t, kNumMemoryCategories>;  // by MemoryCategory
std::int64_t total_of(const MemoryBytes& bytes);

struct Ledger {
  // Of one instruction, all categories together, in bytes.
  struct Line {
    std::int64_t live = 0;  // when it is over
    std::int64_t peak = 0;  // the most while it runs
    friend bool operator==(const Line&, const Line&) = default;
  };
  MemoryBytes at_rest{};       // before the first instruction
  std::vector<Line> timeline;  // by instruction
  MemoryBytes peaks{};         // of each category, each at its own moment
  MemoryBytes at_peak{};       // what each category holds when the total is at its peak
  int peak_instruction = -1;   // the first at which it is; -1: no instruction takes anything
  // The peak of all that is not gathered: what a device holds besides its gathered blocks (fsdp/simulate.h).
  std::int64_t peak_without_gathered = 0;

  std::int64_t peak() const { return total_of(at_peak); }
};

// program: of these units on the rank that `groups` describes; its segments run as `model` says. staging_bytes: held for saves all the time.
Ledger make_ledger(const StepProgram& program, const ModelSpec& model, const std::vector<UnitSpec>& units,
                   const ShardGroups& groups, std::int64_t staging_bytes = 0);

}  // namespace tessera
