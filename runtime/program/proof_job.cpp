#include "runtime/program/proof_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw InternalError("proof: " + why);
}

std::string_view axis_name(std::string_view group) {
  return group.substr(0, group.find(':'));
}

std::vector<int> class_of_each_rank(std::span<const ProgramClass> classes) {
  std::size_t num_ranks = 0;
  for (const ProgramClass& c : classes) num_ranks += c.ranks.size();
  std::vector<int> class_of(num_ranks, -1);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if (classes[c].program == nullptr || classes[c].ranks.empty()) refuse("a class has a program and ranks");
    for (const int rank : classes[c].ranks) {
      if (rank < 0 || rank >= static_cast<int>(num_ranks)) continue;  // another rank is then in no class
      if (class_of[rank] >= 0) refuse(fmt::format("rank {} is in two classes", rank));
      class_of[rank] = static_cast<int>(c);
    }
  }
  const auto missing = std::find(class_of.begin(), class_of.end(), -1);
  if (missing != class_of.end()) refuse(fmt::format("rank {} is in no class", missing - class_of.begin()));
  return class_of;
}

class Indexer {
 public:
  Indexer(std::span<const ProgramClass> classes, std::span<const ProofGroup> groups) {
    job_.ranks.class_of = class_of_each_rank(classes);
    for (const ProofGroup& group : groups) add(group);
    for (const ProgramClass& c : classes) add(c);
  }
  ProofJob take() { return std::move(job_); }

 private:
  int find_axis(std::string_view name) const {
    return static_cast<int>(std::find(axes_.begin(), axes_.end(), name) - axes_.begin());
  }

  void add(const ProofGroup& group) {
    const int axis = find_axis(axis_name(group.name));
    if (axis == static_cast<int>(axes_.size())) {
      axes_.emplace_back(axis_name(group.name));
      job_.ranks.group_of.emplace_back(job_.ranks.class_of.size(), -1);
    }
    const int index = static_cast<int>(job_.group_names.size());
    for (const int rank : group.members) {
      if (rank < 0 || rank >= job_.ranks.num_ranks())
        refuse(fmt::format("rank {}, a member of {}, is in no class", rank, group.name));
      int& place = job_.ranks.group_of[axis][rank];
      if (place >= 0) refuse(fmt::format("rank {} is in {} and in {}", rank, job_.group_names[place], group.name));
      place = index;
    }
    job_.group_names.push_back(group.name);
    job_.group_axes.push_back(axis);
    job_.ranks.members.push_back(group.members);
  }

  void add(const ProgramClass& c) {
    IndexedProgram program{.source = c.program, .calls = std::vector<std::vector<int>>(axes_.size() * kNumStreams)};
    for (int i = 0; i < static_cast<int>(c.program->instructions.size()); ++i) {
      const Instruction& instruction = program.at(i);
      check(*c.program, i);
      program.channels.push_back(collective_of(instruction.op).empty() ? kNoChannel : find_channel(instruction, c));
      program.places.push_back(-1);
      if (!program.is_call(i)) continue;
      std::vector<int>& calls = program.calls[program.channels.back()];
      program.places.back() = static_cast<int>(calls.size());
      calls.push_back(i);
    }
    check_membership(program, c);
    job_.programs.push_back(std::move(program));
  }

  static void check(const StepProgram& program, int index) {
    const Instruction& instruction = program.instructions[index];
    if (instruction.unit >= static_cast<int>(program.unit_names.size()) ||
        instruction.segment >= static_cast<int>(program.segment_names.size()))
      refuse(fmt::format("instruction {} names a unit or a segment that its program has not", index));
    for (const int wait : instruction.waits) {
      if (wait < 0 || wait >= index)
        refuse(fmt::format("instruction {} ({}) waits for instruction {}, which is no earlier one", index,
                           program.text(instruction), wait));
    }
  }

  Channel find_channel(const Instruction& call, const ProgramClass& c) const {
    const int axis = find_axis(axis_name(call.group));
    const int rank = c.ranks.front();
    const int group = axis < static_cast<int>(axes_.size()) ? job_.ranks.group_of[axis][rank] : -1;
    if (group < 0 || job_.group_names[group] != call.group)
      refuse(fmt::format("rank {} calls on {}, of which it is no member", rank, call.group));
    return channel_of(axis, call.stream);
  }

  void check_membership(const IndexedProgram& program, const ProgramClass& c) const {
    for (Channel channel = 0; channel < static_cast<int>(program.calls.size()); ++channel) {
      if (program.calls[channel].empty()) continue;
      for (const int rank : c.ranks) {
        if (job_.ranks.group_on(channel, rank) < 0)
          refuse(fmt::format("rank {} calls on {}, and is in no group of it", rank, axes_[axis_of(channel)]));
      }
    }
  }

  ProofJob job_;
  std::vector<std::string> axes_;
};

}  // namespace

const std::vector<int>& RankedPrograms::members_of(int rank, int call) const {
  return ranks.members[ranks.group_on(program_of(rank).channels[call], rank)];
}

int RankedPrograms::instruction_of(int member, int rank, int call) const {
  const IndexedProgram& program = program_of(rank);
  return program_of(member).calls[program.channels[call]][program.places[call]];
}

InstructionNode node_of(const RankedPrograms& job, int rank, int instruction) {
  if (!job.program_of(rank).is_call(instruction)) return {rank, instruction};
  const int first = job.members_of(rank, instruction).front();
  return {first, job.instruction_of(first, rank, instruction)};
}

ProofJob index_job(std::span<const ProgramClass> classes, std::span<const ProofGroup> groups) {
  return Indexer(classes, groups).take();
}

std::string words_of(const StepProgram& program, const Instruction& instruction) {
  const std::string_view collective = collective_of(instruction.op);
  if (collective.empty() || instruction.unit < 0) return program.text(instruction);
  std::string words = fmt::format("{} {}", collective, program.unit_names[instruction.unit]);
  if (instruction.segment >= 0) words += ' ' + program.segment_names[instruction.segment];
  return words;
}

std::string call_text(const StepProgram& program, const Instruction& call) {
  std::string text = fmt::format("{} ({}", words_of(program, call), call.phase);
  if (call.micro_batch >= 0) text += fmt::format(", micro {}", call.micro_batch);
  return text + (call.accumulate ? ", +=)" : ")");
}

std::string place_text(int place, const std::string& group, StreamId stream) {
  return fmt::format("call {} of {}/{}", place, group, name_of(stream));
}

}  // namespace tessera
