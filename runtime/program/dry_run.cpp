#include "runtime/program/dry_run.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

class DryRun {
 public:
  DryRun(const RankedPrograms& job, const std::vector<ProgramOrder>& orders)
      : job_(job), orders_(orders), arrived_(job.ranks.class_of.size()), num_arrived_(job.ranks.members.size()) {
    for (const int c : job.ranks.class_of) progress_.first_open.push_back(orders[c].first_on_stream);
  }

  DryRunEnd run() {
    for (int rank = 0; rank < job_.ranks.num_ranks(); ++rank) movable_.push_back(rank);
    while (!movable_.empty()) {
      const int rank = movable_.back();
      movable_.pop_back();
      advance(rank);
    }
    return std::move(progress_);
  }

 private:
  // As far as this rank comes before it needs others. Each stream may free another one.
  void advance(int rank) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int stream = 0; stream < kNumStreams; ++stream) {
        while (advance(rank, stream)) moved = true;
      }
    }
  }

  bool advance(int rank, int stream) {
    const IndexedProgram& program = job_.program_of(rank);
    const int instruction = progress_.first_open[rank][stream];
    if (instruction == program.size() || arrived_[rank][stream] || !may_start(rank, instruction)) return false;
    if (program.is_call(instruction)) return arrive(rank, program.channels[instruction]);
    complete(rank, stream);
    return true;
  }

  bool may_start(int rank, int instruction) const {
    const int blocker = orders_[job_.ranks.class_of[rank]].blocked_by[instruction];
    const std::vector<int>& waits = job_.program_of(rank).at(instruction).waits;
    return (blocker < 0 || !progress_.is_open(job_, rank, blocker)) &&
           std::none_of(waits.begin(), waits.end(), [&](int wait) { return progress_.is_open(job_, rank, wait); });
  }

  void complete(int rank, int stream) {
    int& at = progress_.first_open[rank][stream];
    at = orders_[job_.ranks.class_of[rank]].next_on_stream[at];
  }

  // Whether the call completes, which takes all members. They are at the same call: calls match and complete together.
  bool arrive(int rank, Channel channel) {
    const int stream = static_cast<int>(stream_of(channel));
    const int group = job_.ranks.group_on(channel, rank);
    const std::vector<int>& members = job_.ranks.members[group];
    arrived_[rank][stream] = true;
    if (++num_arrived_[group][stream] < static_cast<int>(members.size())) return false;
    num_arrived_[group][stream] = 0;
    for (const int member : members) {
      arrived_[member][stream] = false;
      complete(member, stream);
      if (member != rank) movable_.push_back(member);
    }
    return true;
  }

  const RankedPrograms& job_;
  const std::vector<ProgramOrder>& orders_;
  DryRunEnd progress_;
  std::vector<std::array<bool, kNumStreams>> arrived_;     // by rank: stands at a call and waits for other members
  std::vector<std::array<int, kNumStreams>> num_arrived_;  // by group
  std::vector<int> movable_;
};

}  // namespace

bool blocks_host(const Instruction& instruction) {
  return instruction.stream == StreamId::kCompute || instruction.op == OpCode::kAgreeNorm ||
         instruction.op == OpCode::kAgreeLoss;
}

ProgramOrder order_of(const StepProgram& program) {
  const int size = static_cast<int>(program.instructions.size());
  ProgramOrder order;
  order.next_on_stream.assign(size, size);
  order.first_on_stream.fill(size);
  for (int i = size - 1; i >= 0; --i) {
    int& first = order.first_on_stream[static_cast<int>(program.instructions[i].stream)];
    order.next_on_stream[i] = first;
    first = i;
  }
  int blocker = -1;
  for (int i = 0; i < size; ++i) {
    order.blocked_by.push_back(blocker);
    if (blocks_host(program.instructions[i])) blocker = i;
  }
  return order;
}

bool DryRunEnd::is_complete(const RankedPrograms& job) const {
  for (int rank = 0; rank < job.ranks.num_ranks(); ++rank) {
    const int size = job.program_of(rank).size();
    const auto& open = first_open[rank];
    if (std::any_of(open.begin(), open.end(), [size](int first) { return first < size; })) return false;
  }
  return true;
}

DryRunEnd dry_run(const RankedPrograms& job, const std::vector<ProgramOrder>& orders) {
  return DryRun(job, orders).run();
}

}  // namespace tessera
