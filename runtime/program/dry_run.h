// Runs the programs of a job without doing anything: who could go on, and where does everybody end?
#pragma once

#include <array>
#include <vector>

#include "runtime/program/proof_job.h"

namespace tessera {

// What orders the instructions of a program besides their waits. The host issues them one by one, and streams run what
// they are given in order; an instruction that blocks the host thereby precedes all later ones, on any stream.
struct ProgramOrder {
  std::vector<int> next_on_stream;  // by instruction: the next one on its stream; size: none
  std::vector<int> blocked_by;      // by instruction: the last one before it that blocks the host; -1: none
  std::array<int, kNumStreams> first_on_stream{};  // size: none
};
ProgramOrder order_of(const StepProgram& program);

// The compute stream runs on the host thread, and the host waits for what ranks agree on at the end of a step.
bool blocks_host(const Instruction& instruction);

// Where a job ends.
struct DryRunEnd {
  std::vector<std::array<int, kNumStreams>> first_open;  // by rank, by stream: the first that never completes; or size

  bool is_open(const RankedPrograms& job, int rank, int instruction) const {
    return instruction >= first_open[rank][static_cast<int>(job.program_of(rank).at(instruction).stream)];
  }
  bool is_complete(const RankedPrograms& job) const;
};

// In whatever order ranks and streams advance: an instruction that may start stays so whatever else completes, so all
// orders complete the same instructions. Calls must match. orders: by class.
DryRunEnd dry_run(const RankedPrograms& job, const std::vector<ProgramOrder>& orders);

}  // namespace tessera
