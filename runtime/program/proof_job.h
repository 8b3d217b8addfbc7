// What a proof works on: programs and groups, checked and indexed. For proof.cpp and the files beside it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/program/proof.h"

namespace tessera {

// The communicators of one axis on one stream. A rank is a member of at most one of them.
using Channel = int;
constexpr Channel kNoChannel = -1;
constexpr Channel channel_of(int axis, StreamId stream) {
  return axis * kNumStreams + static_cast<int>(stream);
}
constexpr int axis_of(Channel channel) {
  return channel / kNumStreams;
}
constexpr StreamId stream_of(Channel channel) {
  return static_cast<StreamId>(channel % kNumStreams);
}

struct IndexedProgram {
  const StepProgram* source = nullptr;
  std::vector<Channel> channels;        // by instruction; kNoChannel: no collective
  std::vector<int> places;              // by instruction: its place among the calls on its channel
  std::vector<std::vector<int>> calls;  // by channel: the instructions that call, in order

  int size() const { return static_cast<int>(channels.size()); }
  bool is_call(int instruction) const { return channels[instruction] != kNoChannel; }
  const Instruction& at(int instruction) const { return source->instructions[instruction]; }
};

// Who runs what, and who is in which group.
struct RankTable {
  std::vector<int> class_of;               // by rank
  std::vector<std::vector<int>> group_of;  // by axis, by rank; -1: in no group of this axis
  std::vector<std::vector<int>> members;   // by group

  int num_ranks() const { return static_cast<int>(class_of.size()); }
  int group_on(Channel channel, int rank) const { return group_of[axis_of(channel)][rank]; }
};

// What each rank runs. A view.
struct RankedPrograms {
  const std::vector<IndexedProgram>& programs;  // by class
  const RankTable& ranks;

  const IndexedProgram& program_of(int rank) const { return programs[ranks.class_of[rank]]; }
  const std::vector<int>& members_of(int rank, int call) const;
  // What this member executes for a call of that rank.
  int instruction_of(int member, int rank, int call) const;
};

// An instruction as a node of what waits for what: a call stands under the name of its first member.
struct InstructionNode {
  int rank = 0, instruction = 0;
  friend bool operator==(const InstructionNode&, const InstructionNode&) = default;
};
InstructionNode node_of(const RankedPrograms& job, int rank, int instruction);

struct ProofJob {
  std::vector<IndexedProgram> programs;  // by class
  RankTable ranks;
  std::vector<std::string> group_names;
  std::vector<int> group_axes;
};

// InternalError as prove() says.
ProofJob index_job(std::span<const ProgramClass> classes, std::span<const ProofGroup> groups);

// "all_gather block.1", "agree tokens", "wait block.0".
std::string words_of(const StepProgram& program, const Instruction& instruction);
// "all_gather block.1 (forward)", "agree tokens (forward)", "reduce_scatter block.0 (backward, micro 3)".
std::string call_text(const StepProgram& program, const Instruction& call);
// "call 3 of dp:0/gather".
std::string place_text(int place, const std::string& group, StreamId stream);

}  // namespace tessera
