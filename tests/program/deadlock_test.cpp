// Jobs whose calls match, and which nevertheless may not come to an end.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "runtime/program/proof.h"
#include "tests/program/proof_jobs.h"

namespace tessera {
namespace {

using test::by_hand;
using test::groups_of;
using test::Lines;
using test::reduce_gradient;
using test::unshard;
using test::wait_reduce;
using test::wait_unshard;

ProofResult prove_pair(const StepProgram& a, const StepProgram& b) {
  return prove({{ProgramClass{&a, {0}}, ProgramClass{&b, {1}}}}, groups_of({.dp = 2}));
}

TEST(Deadlock, TwoRanksThatWaitInOppositeOrderAreACycleOfTwo) {
  const ProofResult result =
      prove_pair(by_hand({unshard(0), reduce_gradient(1, {0})}), by_hand({reduce_gradient(1), unshard(0, {0})}));
  EXPECT_EQ(result.outcome, ProofOutcome::kDeadlock);
  EXPECT_EQ(result.text, "2 ranks match; deadlock (2 classes, 2 communicators, 2 calls)");
  EXPECT_EQ(result.counterexample,
            (Lines{"rank 1: all_gather root (instruction 1, call 0 of dp:0/gather) waits for reduce_scatter block.0 "
                   "(instruction 0, call 0 of dp:0/reduce)",
                   "rank 0: reduce_scatter block.0 (instruction 1, call 0 of dp:0/reduce) waits for all_gather root "
                   "(instruction 0, call 0 of dp:0/gather)"}));
}

TEST(Deadlock, StreamsOfTheirOwnMayBeIssuedInAnyOrder) {
  EXPECT_TRUE(prove_pair(by_hand({unshard(0), reduce_gradient(1)}), by_hand({reduce_gradient(1), unshard(0)})).ok());
}

// What runs on the compute stream holds up the host, and with it every stream.
TEST(Deadlock, TheHostOrdersWhatStreamsDoNot) {
  const StepProgram a = by_hand({unshard(0), wait_unshard(0, 0), reduce_gradient(1), wait_reduce(1, 2)});
  const StepProgram b = by_hand({reduce_gradient(1), wait_reduce(1, 0), unshard(0), wait_unshard(0, 2)});
  EXPECT_EQ(
      prove_pair(a, b).counterexample,
      (Lines{"rank 1: all_gather root (instruction 2, call 0 of dp:0/gather) comes after wait reduce block.0 "
             "(instruction 1) on its host",
             "rank 1: wait reduce block.0 (instruction 1) waits for reduce_scatter block.0 (instruction 0, call 0 "
             "of dp:0/reduce)",
             "rank 0: reduce_scatter block.0 (instruction 2, call 0 of dp:0/reduce) comes after wait root "
             "(instruction 1) on its host",
             "rank 0: wait root (instruction 1) waits for all_gather root (instruction 0, call 0 of "
             "dp:0/gather)"}));
}

TEST(Deadlock, AnAgreementOfNormOrLossHoldsUpTheHostAndOneOfTokensDoesNot) {
  for (const auto& [op, ok] : {std::pair(OpCode::kAgreeTokens, true), std::pair(OpCode::kAgreeNorm, false),
                               std::pair(OpCode::kAgreeLoss, false)}) {
    const Instruction agree{.op = op, .stream = StreamId::kReduce, .group = "world", .phase = "update"};
    // Rank 0 agrees after an all_gather that rank 1 issues after it agreed.
    Instruction after_gather = agree;
    after_gather.waits = {0};
    EXPECT_EQ(prove_pair(by_hand({unshard(0), after_gather}), by_hand({agree, unshard(0)})).ok(), ok) << name_of(op);
  }
}

// Rank 0 gathers root and block.0 in stream order and rank 1 waits across streams: a wait, and the order of a stream.
TEST(Deadlock, TheOrderOfAStreamCounts) {
  const StepProgram a = by_hand({unshard(0), unshard(1), reduce_gradient(2, {1})});
  const StepProgram b = by_hand({reduce_gradient(2), unshard(0, {0}), unshard(1)});
  EXPECT_EQ(prove_pair(a, b).counterexample,
            (Lines{"rank 1: all_gather root (instruction 1, call 0 of dp:0/gather) waits for reduce_scatter block.1 "
                   "(instruction 0, call 0 of dp:0/reduce)",
                   "rank 0: reduce_scatter block.1 (instruction 2, call 0 of dp:0/reduce) waits for all_gather block.0 "
                   "(instruction 1, call 1 of dp:0/gather)",
                   "rank 0: all_gather block.0 (instruction 1, call 1 of dp:0/gather) comes after all_gather root "
                   "(instruction 0, call 0 of dp:0/gather) on its gather stream"}));
}

// A cycle of four over the hosts before a whole training step, and one of two after it: everything there waits for the first.
TEST(Deadlock, TheShortestCycleIsFoundInALargeProgramAmongLongerOnes) {
  const StepProgram step = test::training(12, {.num_micro_batches = 4});
  ASSERT_EQ(step.instructions.size(), 528U);
  const StepProgram a =
      test::joined(step, {by_hand({unshard(0), wait_unshard(0, 0), reduce_gradient(1), wait_reduce(1, 2)}), step,
                          by_hand({unshard(0), reduce_gradient(1, {0})}), step});
  const StepProgram b =
      test::joined(step, {by_hand({reduce_gradient(1), wait_reduce(1, 0), unshard(0), wait_unshard(0, 2)}), step,
                          by_hand({reduce_gradient(1), unshard(0, {0})}), step});
  EXPECT_EQ(
      prove_pair(a, b).counterexample,
      (Lines{"rank 1: all_gather root (instruction 1061, call 201 of dp:0/gather) waits for reduce_scatter block.0 "
             "(instruction 1060, call 27 of dp:0/reduce)",
             "rank 0: reduce_scatter block.0 (instruction 1061, call 27 of dp:0/reduce) waits for all_gather root "
             "(instruction 1060, call 201 of dp:0/gather)"}));
}

// Calls on axis a before axis b, or the other way round.
const StepProgram kAThenB = by_hand({unshard(0, {}, "a:0"), reduce_gradient(0, {0}, "b:0")});
StepProgram b_then_a(const std::string& a, const std::string& b) {
  return by_hand({reduce_gradient(0, {}, b), unshard(0, {0}, a)});
}

// Classes that are shifted against each other: each pair of classes waits in a circle, the ranks do not. Rank 0 calls on a:0
// alone, then ranks 0 and 1 on b:0, 1 and 2 on a:1, and rank 2 on b:1.
TEST(Deadlock, ACycleOfClassesThatNoRanksFormIsNone) {
  const StepProgram shifted = b_then_a("a:1", "b:0");
  EXPECT_TRUE(prove({{ProgramClass{&kAThenB, {0, 2}}, ProgramClass{&shifted, {1}}}},
                    {{{"a:0", {0}}, {"a:1", {1, 2}}, {"b:0", {0, 1}}, {"b:1", {2}}}})
                  .ok());
}

// The same shift in a ring is a deadlock: of four ranks, where classes would have made it two.
TEST(Deadlock, ACycleOfClassesMayBeALongerOneOfRanks) {
  const StepProgram shifted = b_then_a("a:0", "b:1");
  const std::vector<ProofGroup> groups{{"a:0", {0, 1}}, {"a:1", {2, 3}}, {"b:0", {0, 3}}, {"b:1", {1, 2}}};
  EXPECT_EQ(prove({{ProgramClass{&kAThenB, {0, 2}}, ProgramClass{&shifted, {1, 3}}}}, groups).counterexample,
            (Lines{"rank 1: all_gather root (instruction 1, call 0 of a:0/gather) waits for reduce_scatter root "
                   "(instruction 0, call 0 of b:1/reduce)",
                   "rank 2: reduce_scatter root (instruction 1, call 0 of b:1/reduce) waits for all_gather root "
                   "(instruction 0, call 0 of a:1/gather)",
                   "rank 3: all_gather root (instruction 1, call 0 of a:1/gather) waits for reduce_scatter root "
                   "(instruction 0, call 0 of b:0/reduce)",
                   "rank 0: reduce_scatter root (instruction 1, call 0 of b:0/reduce) waits for all_gather root "
                   "(instruction 0, call 0 of a:0/gather)"}));
}

TEST(Deadlock, OneOfThousandsOfRanksIsFound) {
  const StepProgram step = test::training(12, {.num_micro_batches = 4});
  const StepProgram a =
      test::joined(step, {by_hand({unshard(0), wait_unshard(0, 0), reduce_gradient(1), wait_reduce(1, 2)}), step});
  const StepProgram b =
      test::joined(step, {by_hand({reduce_gradient(1), wait_reduce(1, 0), unshard(0), wait_unshard(0, 2)}), step});
  const Lines lines =
      prove({{ProgramClass{&a, test::iota(4095)}, ProgramClass{&b, {4095}}}}, groups_of({.dp = 4096})).counterexample;
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_TRUE(lines[0].starts_with("rank 4095: all_gather root (instruction 530, call 100 of dp:0/gather)"))
      << lines[0];
}

// Small jobs at random, and the answer by brute force: a matrix of who waits for whom, and its powers.
class RandomWaitingJob {
 public:
  explicit RandomWaitingJob(unsigned seed) : random_(seed) {
    for (const char* axis : {"a", "b"}) add_groups(axis);
    for (int rank = 0; rank < kNumRanks; ++rank) programs_.push_back(program(rank));
    // Of equal order and waits, with other group names: two ranks of one class.
    programs_[3] = renamed(programs_[0], 3);
  }

  ProofResult prove() const {
    return tessera::prove({{ProgramClass{&programs_[0], {0, 3}}, ProgramClass{&programs_[1], {1}},
                            ProgramClass{&programs_[2], {2}}, ProgramClass{&programs_[4], {4}}}},
                          groups_);
  }

  // 0: no cycle.
  std::size_t shortest_cycle() {
    for (int rank = 0; rank < kNumRanks; ++rank) add_edges(rank);
    const std::size_t n = waits_for_.size();
    Matrix paths = waits_for_;
    for (std::size_t length = 1; length <= n; ++length) {
      for (std::size_t i = 0; i < n; ++i) {
        if (paths[i][i]) return length;
      }
      Matrix longer(n, std::vector<bool>(n));
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          if (!paths[i][j]) continue;
          for (std::size_t k = 0; k < n; ++k) longer[i][k] = longer[i][k] || waits_for_[j][k];
        }
      }
      paths = std::move(longer);
    }
    return 0;
  }

 private:
  static constexpr int kNumRanks = 5;
  using Matrix = std::vector<std::vector<bool>>;

  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  void add_groups(const std::string& axis) {
    std::vector<ProofGroup> groups{{axis + ":0", {}}, {axis + ":1", {}}};
    for (int rank = 0; rank < kNumRanks; ++rank) groups[pick(2)].members.push_back(rank);
    groups_.insert(groups_.end(), groups.begin(), groups.end());
  }

  const std::string& group_of(char axis, int rank) const {
    for (const ProofGroup& group : groups_) {
      if (group.name[0] == axis && std::count(group.members.begin(), group.members.end(), rank) > 0) return group.name;
    }
    throw std::logic_error("every rank is in a group");
  }

  // Two calls on each of three communicators, in an order across them that is this rank's own.
  StepProgram program(int rank) {
    std::vector<int> channels{0, 0, 1, 1, 2, 2};
    std::shuffle(channels.begin(), channels.end(), random_);
    std::vector<Instruction> list;
    for (const int channel : channels) {
      if (channel == 0) list.push_back(unshard(0, {}, group_of('a', rank)));
      if (channel == 1) list.push_back(reduce_gradient(0, {}, group_of('a', rank)));
      if (channel == 2) list.push_back(reduce_gradient(0, {}, group_of('b', rank)));
      if (channel == 2) list.back().stream = StreamId::kPipe;
      const int n = static_cast<int>(list.size()) - 1;
      if (n > 0 && pick(4) == 0) list.back().waits = {pick(n)};
      if (pick(4) == 0) list.push_back(wait_unshard(0, pick(n + 1)));
    }
    return by_hand(std::move(list));
  }

  StepProgram renamed(StepProgram program, int rank) const {
    for (Instruction& i : program.instructions) {
      if (!i.group.empty()) i.group = group_of(i.group[0], rank);
    }
    return program;
  }

  // A node is named "a:0/gather/1" or "rank 2/5".
  std::size_t node(int rank, int index) {
    const std::vector<Instruction>& list = programs_[rank].instructions;
    const Instruction& i = list[index];
    std::string name = fmt::format("rank {}/{}", rank, index);
    if (!i.group.empty()) {
      const auto place = std::count_if(list.begin(), list.begin() + index, [&](const Instruction& earlier) {
        return earlier.group == i.group && earlier.stream == i.stream;
      });
      name = fmt::format("{}/{}/{}", i.group, name_of(i.stream), place);
    }
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return found - names_.begin();
    names_.push_back(name);
    waits_for_.emplace_back(names_.size());
    for (std::vector<bool>& row : waits_for_) row.resize(names_.size());
    return names_.size() - 1;
  }

  void add_edges(int rank) {
    const std::vector<Instruction>& list = programs_[rank].instructions;
    for (int later = 0; later < static_cast<int>(list.size()); ++later) {
      for (int earlier = 0; earlier < later; ++earlier) {
        const std::vector<int>& waits = list[later].waits;
        const bool ordered = list[earlier].stream == list[later].stream || list[earlier].stream == StreamId::kCompute ||
                             std::count(waits.begin(), waits.end(), earlier) > 0;
        const std::size_t from = node(rank, later), to = node(rank, earlier);
        if (ordered) waits_for_[from][to] = true;
      }
    }
  }

  std::mt19937 random_;
  std::vector<ProofGroup> groups_;
  std::vector<StepProgram> programs_;
  std::vector<std::string> names_;
  Matrix waits_for_;
};

TEST(Deadlock, RandomJobsEndOrHaveACycleAsShortAsBruteForceFinds) {
  std::vector<int> num_of_length(16);
  for (unsigned seed = 0; seed < 2000; ++seed) {
    RandomWaitingJob job(seed);
    const std::size_t expected = job.shortest_cycle();
    ASSERT_EQ(job.prove().counterexample.size(), expected) << seed;
    ++num_of_length.at(expected);
  }
  for (const int length : {0, 2, 3, 4}) EXPECT_GT(num_of_length[length], 10) << "cycles of length " << length;
}

}  // namespace
}  // namespace tessera
