// Proves on the step programs of all ranks that every communicator's calls match on all its members, in order, and that
// the job cannot deadlock; or gives the shortest counterexample.
//
// A communicator is a group on a stream: dp:0/gather and dp:0/reduce are two. Two calls match where op, unit, segment,
// micro-batch, phase and accumulate are equal; units and segments are compared by name, and element counts follow from
// the unit. Calls are counted from 0, as in the collective log.
//
// Deadlock is decided for the CPU device, where the compute stream runs on the host thread: that orders more than a
// device whose compute stream is asynchronous, so what is proven here holds there too (NCCL wants one launch order per
// device besides). Point-to-point calls, each a rendezvous of two ranks, come with the pipeline.
//
// Pure functions of plain data: nothing here communicates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/program/step_program.h"

namespace tessera {

// A group of the mesh: "world", "dp:0", "shard:3". Its axis is what stands before the colon.
struct ProofGroup {
  std::string name;
  std::vector<int> members;  // logical ranks
};

// The ranks that run one program. Instruction::group names the group of the first of them; each other rank makes the call
// on its own group of that axis.
struct ProgramClass {
  const StepProgram* program = nullptr;
  std::vector<int> ranks;  // logical ranks
};

enum class ProofOutcome : std::uint8_t {
  kProven,
  kMismatch,  // members of a communicator make different calls
  kDeadlock,  // calls match, and yet instructions wait for each other in a cycle
};

struct ProofResult {
  ProofOutcome outcome = ProofOutcome::kProven;
  // One line: "4096 ranks match; no deadlock (1 class, 6 communicators, 312 calls)", "4 ranks do not match".
  std::string text;
  // In words, empty where proven. Mismatch: the communicator whose calls differ earliest. Deadlock: a line for each wait
  // of the shortest cycle; what is awaited in a line is what waits in the next, and in the last what waits in the first.
  std::vector<std::string> counterexample;
  int num_ranks = 0;
  int num_classes = 0;
  // Where calls match, else 0: communicators on which calls are made; calls, each of all members counted once.
  int num_communicators = 0;
  std::int64_t num_calls = 0;
  bool ok() const { return outcome == ProofOutcome::kProven; }
};

// classes: ranks 0, 1, … of the job, each in one class. groups: in canonical order, which decides between counterexamples
// of one length. InternalError where these are no job: a rank without a program, or in two groups of an axis or in none
// where its program makes calls; a wait that points forward.
ProofResult prove(std::span<const ProgramClass> classes, std::span<const ProofGroup> groups);

}  // namespace tessera
