#include "runtime/program/cycle_candidates.h"

#include <array>

namespace tessera {
namespace {

// What each instruction of a program waits for, where others are not in between.
std::vector<std::vector<int>> direct_waits(const IndexedProgram& program, const ProgramOrder& order) {
  std::vector<std::vector<int>> direct;
  std::array<int, kNumStreams> last_on_stream;
  last_on_stream.fill(-1);
  for (int i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program.at(i);
    std::vector<int>& awaited = direct.emplace_back(instruction.waits);
    int& last = last_on_stream[static_cast<int>(instruction.stream)];
    if (last >= 0) awaited.push_back(last);
    if (order.blocked_by[i] >= 0) awaited.push_back(order.blocked_by[i]);
    last = i;
  }
  return direct;
}

// Removes what nothing waits for, and then what only that waited for, until something waits for all that is left.
class Trimmer {
 public:
  Trimmer(const RankedPrograms& job, const std::vector<ProgramOrder>& orders, const DryRunEnd& progress)
      : job_(job), progress_(progress) {
    for (std::size_t c = 0; c < job.programs.size(); ++c) {
      direct_.push_back(direct_waits(job.programs[c], orders[c]));
      num_waiting_.emplace_back(job.programs[c].size(), 0);
    }
  }

  CycleCandidates run() {
    for_each_open(
        [&](int rank, int i) { for_each_awaited(rank, i, [&](int& waiting, InstructionNode) { ++waiting; }); });
    std::vector<InstructionNode> removed;
    for_each_open([&](int rank, int i) {
      if (node_of(job_, rank, i) == InstructionNode{rank, i} && num_waiting_[rank][i] == 0)
        removed.push_back({rank, i});
    });
    while (!removed.empty()) {
      const InstructionNode node = removed.back();
      removed.pop_back();
      for_each_part(node, [&](int rank, int i) {
        for_each_awaited(rank, i, [&](int& waiting, InstructionNode awaited) {
          if (--waiting == 0) removed.push_back(awaited);
        });
      });
    }
    return candidates();
  }

 private:
  template <typename F>
  void for_each_open(F f) const {
    for (int rank = 0; rank < job_.ranks.num_ranks(); ++rank) {
      for (int i = 0; i < job_.program_of(rank).size(); ++i) {
        if (progress_.is_open(job_, rank, i)) f(rank, i);
      }
    }
  }

  template <typename F>
  void for_each_part(InstructionNode node, F f) const {
    if (!job_.program_of(node.rank).is_call(node.instruction)) return f(node.rank, node.instruction);
    for (const int member : job_.members_of(node.rank, node.instruction))
      f(member, job_.instruction_of(member, node.rank, node.instruction));
  }

  template <typename F>
  void for_each_awaited(int rank, int waiting, F f) {
    for (const int i : direct_[rank][waiting]) {
      if (!progress_.is_open(job_, rank, i)) continue;
      const InstructionNode node = node_of(job_, rank, i);
      f(num_waiting_[node.rank][node.instruction], node);
    }
  }

  CycleCandidates candidates() const {
    CycleCandidates candidates;
    for (const IndexedProgram& program : job_.programs) candidates.emplace_back(program.size(), false);
    for_each_open([&](int rank, int i) {
      const InstructionNode node = node_of(job_, rank, i);
      candidates[rank][i] = num_waiting_[node.rank][node.instruction] > 0;
    });
    return candidates;
  }

  const RankedPrograms& job_;
  const DryRunEnd& progress_;
  std::vector<std::vector<std::vector<int>>> direct_;  // by rank, by instruction
  std::vector<std::vector<int>> num_waiting_;  // by rank, by instruction, of nodes: what is left and waits for it
};

}  // namespace

CycleCandidates find_candidates(const RankedPrograms& job, const std::vector<ProgramOrder>& orders,
                                const DryRunEnd& progress) {
  return Trimmer(job, orders, progress).run();
}

}  // namespace tessera
