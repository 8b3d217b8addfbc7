#include "runtime/program/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/program/cycle_candidates.h"
#include "runtime/program/dry_run.h"
#include "runtime/program/wait_cycle.h"

namespace tessera {
namespace {

// Whoever has met one of two classes has met the other.
void join(std::vector<int>& lowest, int a, int b) {
  if (lowest[a] == lowest[b]) return;
  const auto [low, high] = std::minmax({lowest[a], lowest[b]});
  std::replace(lowest.begin(), lowest.end(), high, low);
}

// A job with one rank per class: classes that meet in a group of an axis, directly or over others, form one group of it.
//
// The nodes of the job project onto those of the quotient: an instruction of a rank onto that of its class, a call of a group
// onto that of the classes it is a call of (which all make the same calls there, since calls match). What waits for what on
// a rank does so in its program, so edges project too, and a cycle becomes a closed walk of the same length. Two
// instructions of one program never become one node, so no edge becomes a point, and a closed walk contains a cycle. Hence:
// if the quotient has no cycle, the job has none; and none of the job's is shorter than the quotient's shortest.
//
// The converse does not hold. With groups a: {0}, {1, 2} and b: {0, 1}, {2}, where ranks 0 and 2 call on a before b and
// rank 1 on b before a, the quotient waits in a circle, while the job goes through rank by rank.
RankTable quotient_of(const ProofJob& job) {
  RankTable quotient;
  quotient.class_of.resize(job.programs.size());
  std::iota(quotient.class_of.begin(), quotient.class_of.end(), 0);
  // At first, by axis and by class: the lowest class that it meets.
  quotient.group_of.assign(job.ranks.group_of.size(), quotient.class_of);
  for (std::size_t group = 0; group < job.ranks.members.size(); ++group) {
    std::vector<int>& lowest = quotient.group_of[job.group_axes[group]];
    const std::vector<int>& members = job.ranks.members[group];
    for (const int rank : members) join(lowest, job.ranks.class_of[members.front()], job.ranks.class_of[rank]);
  }
  for (std::vector<int>& of_axis : quotient.group_of) {
    std::vector<int> group_of_lowest(of_axis.size(), -1);
    for (const int c : quotient.class_of) {
      int& group = group_of_lowest[of_axis[c]];
      if (group < 0) {
        group = static_cast<int>(quotient.members.size());
        quotient.members.emplace_back();
      }
      quotient.members[group].push_back(c);
      of_axis[c] = group;
    }
  }
  return quotient;
}

WaitCycle shortest_cycle(const ProofJob& job) {
  std::vector<ProgramOrder> orders;
  for (const IndexedProgram& program : job.programs) orders.push_back(order_of(*program.source));
  const RankTable classes = quotient_of(job);
  const RankedPrograms quotient{job.programs, classes};
  const DryRunEnd progress = dry_run(quotient, orders);
  if (progress.is_complete(quotient)) return {};
  const RankedPrograms ranked{job.programs, job.ranks};
  if (dry_run(ranked, orders).is_complete(ranked)) return {};
  const CycleCandidates candidates = find_candidates(quotient, orders, progress);
  return find_shortest_cycle(ranked, candidates, find_shortest_cycle(quotient, candidates));
}

// "wait block.0 (instruction 12)", "all_gather block.0 (instruction 7, call 3 of dp:0/gather)".
std::string instruction_text(const ProofJob& job, int rank, int index) {
  const IndexedProgram& program = job.programs[job.ranks.class_of[rank]];
  const Instruction& instruction = program.at(index);
  const Channel channel = program.channels[index];
  const std::string words = words_of(*program.source, instruction);
  if (channel == kNoChannel) return fmt::format("{} (instruction {})", words, index);
  const std::string& group = job.group_names[job.ranks.group_on(channel, rank)];
  return fmt::format("{} (instruction {}, {})", words, index,
                     place_text(program.places[index], group, instruction.stream));
}

std::string edge_text(const ProofJob& job, const WaitEdge& edge) {
  const bool waits = edge.reason == WaitEdge::Reason::kWait;
  std::string text = fmt::format("rank {}: {} {} {}", edge.rank, instruction_text(job, edge.rank, edge.waiting),
                                 waits ? "waits for" : "comes after", instruction_text(job, edge.rank, edge.awaited));
  if (edge.reason == WaitEdge::Reason::kHost) text += " on its host";
  if (edge.reason == WaitEdge::Reason::kStream) {
    const IndexedProgram& program = job.programs[job.ranks.class_of[edge.rank]];
    text += fmt::format(" on its {} stream", name_of(program.at(edge.waiting).stream));
  }
  return text;
}

}  // namespace

std::vector<std::string> find_deadlock(const ProofJob& job) {
  std::vector<std::string> lines;
  for (const WaitEdge& edge : shortest_cycle(job)) lines.push_back(edge_text(job, edge));
  return lines;
}

}  // namespace tessera
