#include "runtime/program/wait_cycle.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

// What later instructions of a program wait for without being told: those that block the host (in the place of the compute
// stream, all of whose instructions do), and those of each other stream.
// Left out is what leads nowhere new: an instruction that blocks the host and itself waits for nobody. What precedes it
// on the host precedes whatever it precedes.
struct Queues {
  std::array<std::vector<int>, kNumStreams> of;
};
constexpr int kHostQueue = static_cast<int>(StreamId::kCompute);

Queues queues_of(const IndexedProgram& program, const std::vector<bool>& candidates) {
  Queues queues;
  for (int i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program.at(i);
    const bool blocks = blocks_host(instruction);
    if (!candidates[i] || (blocks && !program.is_call(i) && instruction.waits.empty())) continue;
    if (blocks) queues.of[kHostQueue].push_back(i);
    if (instruction.stream != StreamId::kCompute) queues.of[static_cast<int>(instruction.stream)].push_back(i);
  }
  return queues;
}

// Looks for cycles through one call after another, each shorter than the one before.
class Search {
 public:
  Search(const RankedPrograms& job, const CycleCandidates& candidates) : job_(job), candidates_(candidates) {
    for (std::size_t c = 0; c < job.programs.size(); ++c) queues_.push_back(queues_of(job.programs[c], candidates[c]));
    std::size_t num_marks = 0;
    for (int rank = 0; rank < job.ranks.num_ranks(); ++rank) {
      first_mark_.push_back(num_marks);
      num_marks += job.program_of(rank).size();
    }
    reached_.resize(num_marks);
  }

  // Each call, until a cycle has `at_least` edges: every cycle passes one, since on one rank all waiting points backwards.
  void look_everywhere(std::size_t at_least) {
    int longest = 0;
    for (const IndexedProgram& program : job_.programs) longest = std::max(longest, program.size());
    for (int i = 0; i < longest; ++i) {
      for (int rank = 0; rank < job_.ranks.num_ranks(); ++rank) {
        if (shortest_.size() == at_least) return;
        if (i < job_.program_of(rank).size() && is_first_of_call(rank, i)) look(rank, i);
      }
    }
  }

  // That call on the ranks of that class, until a cycle has `at_least` edges.
  void look_at_class(int class_index, int call, std::size_t at_least) {
    for (int rank = 0; rank < job_.ranks.num_ranks() && shortest_.size() != at_least; ++rank) {
      if (job_.ranks.class_of[rank] == class_index) look(rank, call);
    }
  }

  WaitCycle take() { return std::move(shortest_); }

 private:
  // What a search has reached, and the edge by which it did.
  struct Reached {
    InstructionNode node;
    int parent = -1;
    std::size_t distance = 0;
    WaitEdge edge;
  };

  bool is_candidate(int rank, int instruction) const { return candidates_[job_.ranks.class_of[rank]][instruction]; }

  bool is_first_of_call(int rank, int instruction) const {
    return is_candidate(rank, instruction) && job_.program_of(rank).is_call(instruction) &&
           job_.members_of(rank, instruction).front() == rank;
  }

  std::vector<bool>::reference mark(InstructionNode node) {
    return reached_[first_mark_[node.rank] + node.instruction];
  }

  // Breadth first from one call, as long as a cycle through it could be shorter than the shortest so far.
  void look(int rank, int call) {
    nodes_.assign(1, {node_of(job_, rank, call)});
    mark(nodes_.front().node) = true;
    reached_to_.assign(job_.ranks.class_of.size(), {});
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
      if (!shortest_.empty() && nodes_[n].distance + 1 >= shortest_.size()) break;
      if (expand(n)) break;
    }
    for (const Reached& reached : nodes_) mark(reached.node) = false;
  }

  // Reaches what a node waits for on each rank that takes part in it. True: that closed a cycle.
  bool expand(int n) {
    const auto [rank, instruction] = nodes_[n].node;
    if (!job_.program_of(rank).is_call(instruction)) return expand(n, rank, instruction);
    for (const int member : job_.members_of(rank, instruction)) {
      if (expand(n, member, job_.instruction_of(member, rank, instruction))) return true;
    }
    return false;
  }

  bool expand(int n, int rank, int waiting) {
    const Instruction& instruction = job_.program_of(rank).at(waiting);
    for (const int wait : instruction.waits) {
      if (is_candidate(rank, wait) && reach(n, {rank, waiting, wait, WaitEdge::Reason::kWait})) return true;
    }
    if (reach_queue(n, rank, waiting, kHostQueue, WaitEdge::Reason::kHost)) return true;
    const int stream = static_cast<int>(instruction.stream);
    return stream != kHostQueue && reach_queue(n, rank, waiting, stream, WaitEdge::Reason::kStream);
  }

  // What stands before an earlier one in the queue was reached with it: each place is looked at once in a search.
  bool reach_queue(int n, int rank, int waiting, int q, WaitEdge::Reason reason) {
    const std::vector<int>& queue = queues_[job_.ranks.class_of[rank]].of[q];
    int& place = reached_to_[rank][q];
    for (; place < static_cast<int>(queue.size()) && queue[place] < waiting; ++place) {
      if (reach(n, {rank, waiting, queue[place], reason})) return true;
    }
    return false;
  }

  bool reach(int parent, const WaitEdge& edge) {
    const InstructionNode node = node_of(job_, edge.rank, edge.awaited);
    if (node == nodes_.front().node) {
      close(parent, edge);
      return true;
    }
    if (mark(node)) return false;
    mark(node) = true;
    nodes_.push_back({node, parent, nodes_[parent].distance + 1, edge});
    return false;
  }

  void close(int parent, const WaitEdge& edge) {
    shortest_.assign(1, edge);
    for (int n = parent; nodes_[n].parent >= 0; n = nodes_[n].parent) shortest_.push_back(nodes_[n].edge);
    std::reverse(shortest_.begin(), shortest_.end());
  }

  const RankedPrograms& job_;
  const CycleCandidates& candidates_;
  std::vector<Queues> queues_;           // by class
  std::vector<std::size_t> first_mark_;  // by rank: that of its first instruction
  WaitCycle shortest_;

  // Of one search. Only what it reached takes more than a bit, since a job of thousands of ranks has many instructions.
  std::vector<Reached> nodes_;
  std::vector<bool> reached_;                             // by mark
  std::vector<std::array<int, kNumStreams>> reached_to_;  // by rank: all before this place of each queue is reached
};

// Two calls, each of which waits for the other on some rank.
constexpr std::size_t kFewestEdges = 2;

}  // namespace

WaitCycle find_shortest_cycle(const RankedPrograms& job, const CycleCandidates& candidates,
                              const WaitCycle& projection) {
  Search search(job, candidates);
  const std::size_t at_least = std::max(kFewestEdges, projection.size());
  if (!projection.empty()) search.look_at_class(projection.front().rank, projection.front().waiting, at_least);
  search.look_everywhere(at_least);
  return search.take();
}

}  // namespace tessera
