#include "runtime/program/step_program.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

std::string_view name_of(StreamId stream) {
  switch (stream) {
    case StreamId::kCompute: return "compute";
    case StreamId::kGather: return "gather";
    case StreamId::kReduce: return "reduce";
    case StreamId::kPipe: return "pipe";
  }
  return "?";
}

std::string_view name_of(OpCode op) {
  switch (op) {
    case OpCode::kAgreeTokens: return "agree tokens";
    case OpCode::kUnshard: return "unshard";
    case OpCode::kWaitUnshard: return "wait";
    case OpCode::kReshard: return "reshard";
    case OpCode::kForward: return "forward";
    case OpCode::kHeadLoss: return "forward backward";
    case OpCode::kBackward: return "backward";
    case OpCode::kOpenGradient: return "open gradient";
    case OpCode::kMergeLanes: return "merge lanes";
    case OpCode::kReduce: return "reduce";
    case OpCode::kReduceReplicas: return "reduce replicas";
    case OpCode::kDropGradient: return "drop gradient";
    case OpCode::kWaitReduce: return "wait reduce";
    case OpCode::kAgreeNorm: return "agree norm, finite, stop";
    case OpCode::kUpdate: return "update";
    case OpCode::kForwardOnly: return "evaluate";
    case OpCode::kEvaluateHead: return "evaluate";
    case OpCode::kAgreeLoss: return "agree loss";
    case OpCode::kLogits: return "logits";
    case OpCode::kRehearseBroadcast: return "rehearse broadcast";
  }
  return "?";
}

std::string_view collective_of(OpCode op) {
  switch (op) {
    case OpCode::kUnshard: return "all_gather";
    case OpCode::kReduce: return "reduce_scatter";
    case OpCode::kReduceReplicas:
    case OpCode::kAgreeTokens:
    case OpCode::kAgreeNorm:
    case OpCode::kAgreeLoss: return "all_reduce";
    case OpCode::kRehearseBroadcast: return "broadcast";
    default: return "";
  }
}

int StepProgram::count(OpCode op) const {
  return static_cast<int>(
      std::count_if(instructions.begin(), instructions.end(), [op](const Instruction& i) { return i.op == op; }));
}

std::string StepProgram::text(const Instruction& i) const {
  std::string words(name_of(i.op));
  if (i.segment >= 0) {
    words += ' ' + segment_names[static_cast<std::size_t>(i.segment)];
  } else if (i.unit >= 0) {
    words += ' ' + unit_names[static_cast<std::size_t>(i.unit)];
  }
  return words;
}

std::vector<std::string> StepProgram::texts() const {
  std::vector<std::string> out;
  out.reserve(instructions.size());
  for (const Instruction& i : instructions) out.push_back(text(i));
  return out;
}

std::string StepProgram::str() const {
  std::string out = title + '\n';
  for (std::size_t n = 0; n < instructions.size(); ++n) {
    const Instruction& i = instructions[n];
    std::string note;
    if (i.micro_batch >= 0) note = fmt::format("micro {}", i.micro_batch);
    if (i.accumulate) note += " +=";
    std::string waits;
    for (const int w : i.waits) waits += fmt::format("{}{}", waits.empty() ? "waits " : ",", w);
    std::string line = fmt::format("{:4} {:<28} {:<12} {:<14} {:<8} {:<8} {}", n, text(i), note, collective_of(i.op),
                                   i.group, name_of(i.stream), waits);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string StepProgram::json() const {
  std::string out = "[";
  for (std::size_t n = 0; n < instructions.size(); ++n) {
    const Instruction& i = instructions[n];
    // Names come from the model's table and hold no character that JSON would escape.
    out += fmt::format(
        R"({}{{"index":{},"text":"{}","stream":"{}","collective":"{}","group":"{}","phase":"{}","micro_batch":{},"accumulate":{},"waits":[{}]}})",
        n == 0 ? "" : ",", n, text(i), name_of(i.stream), collective_of(i.op), i.group, i.phase, i.micro_batch,
        i.accumulate, fmt::join(i.waits, ","));
  }
  return out + "]";
}

}  // namespace tessera
