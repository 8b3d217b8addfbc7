// What a program's collectives move, read off the list.
//
// Bytes that one rank sends and receives in a call over n ranks, where parts travel once (directly, or around a ring):
//   all_gather      sends its shard to n - 1 ranks, receives theirs                    (n - 1) · shard each way
//   reduce_scatter  sends every other rank its part, receives n - 1 times its own      (n - 1) · shard each way
//   all_reduce      as a reduce_scatter and an all_gather of the data's n-th parts     2 (n - 1) / n · data each way
// A tied matrix's lookup segment travels with its unit, cut at the same borders; so shards' parts of it differ. The agreements of a step (a few
// words per rank) count as calls without bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/policy.h"
#include "fsdp/shard_layout.h"
#include "runtime/program/step_program.h"

namespace tessera {

struct CallBytes {
  std::int64_t sent = 0, received = 0;
  friend bool operator==(const CallBytes&, const CallBytes&) = default;
};

// The bytes of single calls, of one rank.
class CallSizes {
 public:
  CallSizes(const ModelSpec& model, const std::vector<UnitSpec>& units, const ShardGroups& groups);
  CallBytes of(const Instruction& instruction) const;  // 0 where it is no collective on a unit

 private:
  std::vector<ShardLayout> layouts_;  // by unit
  ShardGroups groups_;
};

// All calls of one kind on one group.
struct Traffic {
  std::string collective, group;
  int calls = 0;
  CallBytes bytes;  // of all of them
};
// In the order of their first call.
std::vector<Traffic> traffic_of(const StepProgram& program, const CallSizes& sizes);

}  // namespace tessera
