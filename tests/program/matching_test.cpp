// Members of a communicator that make different calls.
#include <gtest/gtest.h>

#include <random>

#include "runtime/program/proof.h"
#include "tests/program/proof_jobs.h"

namespace tessera {
namespace {

using test::groups_of;
using test::Lines;
using test::reduce_gradient;
using test::training;
using test::unshard;

// Rank 1 of 4 runs another program than the rest.
ProofResult prove_with_odd_rank_1(const StepProgram& program, const StepProgram& odd) {
  return prove({{ProgramClass{&program, {0, 2, 3}}, ProgramClass{&odd, {1}}}}, groups_of({.dp = 4}));
}

TEST(Matching, ASwappedPairIsNamedWithBothCalls) {
  const StepProgram program = training(2);
  // 3 unshard block.0 … 6 unshard block.1
  const ProofResult result = prove_with_odd_rank_1(program, test::move_earlier(program, 6, 3));
  EXPECT_EQ(result.outcome, ProofOutcome::kMismatch);
  EXPECT_EQ(result.text, "4 ranks do not match");
  EXPECT_EQ(result.counterexample,
            (Lines{"call 1 of dp:0/gather: ranks 0, 2, 3 make all_gather block.0 (forward), rank 1 makes all_gather "
                   "block.1 (forward)"}));
}

TEST(Matching, ThousandsOfRanksAreListedInRanges) {
  const StepProgram program = training(2);
  const StepProgram odd = test::move_earlier(program, 6, 3);
  std::vector<int> others = test::iota(4096);
  others.erase(others.begin() + 1);
  EXPECT_EQ(prove({{ProgramClass{&program, others}, ProgramClass{&odd, {1}}}}, groups_of({.dp = 4096})).counterexample,
            (Lines{"call 1 of dp:0/gather: ranks 0, 2–4095 make all_gather block.0 (forward), rank 1 makes all_gather "
                   "block.1 (forward)"}));
}

TEST(Matching, ACallMoreIsNamedAsOne) {
  const StepProgram program = training(2);
  StepProgram odd = program;
  odd.instructions.push_back(unshard(1));
  EXPECT_EQ(
      prove_with_odd_rank_1(program, odd).counterexample,
      (Lines{"dp:0/gather: rank 1 makes one call more, all_gather block.0 (forward) as call 5, which ranks 0, 2, 3 "
             "never make"}));
  odd.instructions.push_back(unshard(2));
  EXPECT_EQ(
      prove_with_odd_rank_1(program, odd).counterexample,
      (Lines{"dp:0/gather: rank 1 makes more calls, first all_gather block.0 (forward) as call 5, which ranks 0, 2, "
             "3 never make"}));
}

TEST(Matching, ACallLeftOutIsNamedWhereItIsMissed) {
  const StepProgram program = training(2);
  StepProgram odd = program;
  ASSERT_EQ(program.text(program.instructions[16]), "unshard block.0") << "the last all_gather";
  odd.instructions[16].op = OpCode::kReshard;
  EXPECT_EQ(
      prove_with_odd_rank_1(program, odd).counterexample,
      (Lines{"dp:0/gather: ranks 0, 2, 3 make one call more, all_gather block.0 (backward) as call 4, which rank 1 "
             "never makes"}));
  odd = program;
  odd.instructions[3].op = OpCode::kReshard;
  EXPECT_EQ(prove_with_odd_rank_1(program, odd).counterexample,
            (Lines{"call 1 of dp:0/gather: ranks 0, 2, 3 make all_gather block.0 (forward), rank 1 makes all_gather "
                   "block.1 (forward)"}));
}

TEST(Matching, EveryDifferentCallHasItsRanks) {
  const StepProgram a = test::by_hand({unshard(0), unshard(1)});
  const StepProgram b = test::by_hand({unshard(0), unshard(2)});
  const StepProgram c = test::by_hand({unshard(0)});
  EXPECT_EQ(
      prove({{ProgramClass{&a, {0, 3}}, ProgramClass{&b, {2}}, ProgramClass{&c, {1}}}}, groups_of({.dp = 4}))
          .counterexample,
      (Lines{"call 1 of dp:0/gather: ranks 0, 3 make all_gather block.0 (forward), rank 1 makes none, rank 2 makes "
             "all_gather block.1 (forward)"}));
}

TEST(Matching, TheEarliestDifferenceIsShown) {
  const StepProgram a =
      test::by_hand({unshard(0), unshard(1), reduce_gradient(0), reduce_gradient(1), reduce_gradient(2)});
  // gather differs at call 1, reduce at call 2
  EXPECT_EQ(prove_with_odd_rank_1(
                a, test::by_hand({unshard(0), unshard(2), reduce_gradient(0), reduce_gradient(1), reduce_gradient(0)}))
                .counterexample.front()
                .substr(0, 21),
            "call 1 of dp:0/gather");
  // gather differs at call 1, reduce at call 0
  EXPECT_EQ(prove_with_odd_rank_1(
                a, test::by_hand({unshard(0), unshard(2), reduce_gradient(2), reduce_gradient(1), reduce_gradient(2)}))
                .counterexample.front()
                .substr(0, 21),
            "call 0 of dp:0/reduce");
  // at equal calls: canonical order
  EXPECT_EQ(prove_with_odd_rank_1(
                a, test::by_hand({unshard(2), unshard(1), reduce_gradient(2), reduce_gradient(1), reduce_gradient(2)}))
                .counterexample.front()
                .substr(0, 21),
            "call 0 of dp:0/gather");
}

TEST(Matching, OfManyGroupsTheFirstIsShown) {
  const StepProgram a = test::by_hand({unshard(0)});
  const StepProgram b = test::by_hand({unshard(1, {}, "dp:1")});
  // dp 2 × tp 3: dp:0 is ranks 0, 3; dp:1 is 1, 4; dp:2 is 2, 5
  EXPECT_EQ(
      prove({{ProgramClass{&a, {0, 1, 2, 3}}, ProgramClass{&b, {4, 5}}}}, groups_of({.dp = 2, .tp = 3})).counterexample,
      (Lines{"call 0 of dp:1/gather: rank 1 makes all_gather root (forward), rank 4 makes all_gather block.0 "
             "(forward)"}));
}

TEST(Matching, OpMicroBatchPhaseAndAccumulateCount) {
  const auto message = [](const auto& change) {
    const StepProgram program = test::by_hand({unshard(0)});
    StepProgram odd = program;
    change(odd.instructions[0]);
    const std::string line = prove_with_odd_rank_1(program, odd).counterexample.at(0);
    return line.substr(line.find("rank 1"));
  };
  EXPECT_EQ(message([](Instruction& i) { i.op = OpCode::kReduce; }), "rank 1 makes reduce_scatter root (forward)");
  EXPECT_EQ(message([](Instruction& i) { i.micro_batch = 3; }), "rank 1 makes all_gather root (forward, micro 3)");
  EXPECT_EQ(message([](Instruction& i) { i.phase = "update"; }), "rank 1 makes all_gather root (update)");
  EXPECT_EQ(message([](Instruction& i) { i.accumulate = true; }), "rank 1 makes all_gather root (forward, +=)");
  EXPECT_EQ(message([](Instruction& i) { i = {.op = OpCode::kAgreeTokens, .stream = i.stream, .group = i.group}; }),
            "rank 1 makes agree tokens ()");
}

TEST(Matching, UnitsAreComparedByName) {
  const StepProgram program = test::by_hand({unshard(0), unshard(1)});
  StepProgram renumbered = test::by_hand({unshard(2), unshard(0)});
  renumbered.unit_names = {"block.0", "block.1", "root"};
  EXPECT_TRUE(prove_with_odd_rank_1(program, renumbered).ok());
}

// Ranks that share no group need not make the same calls.
TEST(Matching, RanksThatDoNotMeetAreNotCompared) {
  const StepProgram a = test::by_hand({unshard(0)});
  const StepProgram b = test::by_hand({unshard(1, {}, "dp:1"), unshard(2, {}, "dp:1")});
  EXPECT_EQ(prove({{ProgramClass{&a, {0, 2}}, ProgramClass{&b, {1, 3}}}}, groups_of({.dp = 2, .tp = 2})).text,
            "4 ranks match; no deadlock (2 classes, 2 communicators, 3 calls)");
}

// One order of calls, in which each class makes its own computations and waits.
class RandomMatchingJob {
 public:
  explicit RandomMatchingJob(unsigned seed) : random_(seed) {
    std::vector<Instruction> calls;
    for (int i = 0; i < 12; ++i) {
      const int unit = pick(3);
      calls.push_back(pick(2) == 0 ? unshard(unit) : reduce_gradient(unit));
      if (pick(4) == 0) calls.back().group = "world";
    }
    for (int c = 0; c < 3; ++c) programs_.push_back(program(calls));
    for (int rank = 0; rank < 6; ++rank) class_of_[rank] = rank < 3 ? rank : pick(3);
  }

  ProofResult prove() const {
    std::vector<ProgramClass> classes(programs_.size());
    for (std::size_t c = 0; c < programs_.size(); ++c) classes[c].program = &programs_[c];
    for (int rank = 0; rank < 6; ++rank) classes[class_of_[rank]].ranks.push_back(rank);
    return tessera::prove(classes, groups_of({.dp = 6}));
  }

  // Rank 5 alone makes two calls of one communicator in the other order. False: no two calls there differ.
  bool transpose() {
    StepProgram odd = programs_[class_of_[5]];
    std::vector<std::pair<Instruction*, Instruction*>> pairs;
    for (Instruction& a : odd.instructions) {
      for (Instruction& b : odd.instructions) {
        const bool calls = !collective_of(a.op).empty() && !collective_of(b.op).empty();
        if (calls && a.group == b.group && a.stream == b.stream && a.unit < b.unit) pairs.emplace_back(&a, &b);
      }
    }
    if (pairs.empty()) return false;
    const auto [a, b] = pairs[pick(static_cast<int>(pairs.size()))];
    std::swap(a->unit, b->unit);
    programs_.push_back(odd);
    class_of_[5] = static_cast<int>(programs_.size()) - 1;
    return true;
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  StepProgram program(const std::vector<Instruction>& calls) {
    std::vector<Instruction> instructions;
    for (const Instruction& call : calls) {
      for (int i = pick(3); i > 0; --i) instructions.push_back({.op = OpCode::kReshard, .unit = pick(3)});
      instructions.push_back(call);
      for (int n = static_cast<int>(instructions.size()) - 1, i = pick(3); n > 0 && i > 0; --i)
        instructions.back().waits.push_back(pick(n));
    }
    return test::by_hand(std::move(instructions));
  }

  std::mt19937 random_;
  std::vector<StepProgram> programs_;
  int class_of_[6] = {};
};

TEST(Matching, ProgramsOfOneOrderAreProvenAndAnyTranspositionOfTwoCallsIsRefuted) {
  int num_transposed = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomMatchingJob job(seed);
    ASSERT_TRUE(job.prove().ok()) << seed;
    if (!job.transpose()) continue;
    ++num_transposed;
    ASSERT_EQ(job.prove().outcome, ProofOutcome::kMismatch) << seed;
  }
  EXPECT_GT(num_transposed, 450);
}

}  // namespace
}  // namespace tessera
