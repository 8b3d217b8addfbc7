#include "runtime/train/program_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

// The check of one rank's training program, and the calls it expects.
struct Checked {
  Checked(test::RankParts& parts, std::int64_t step)
      : program(parts.plan.program), check(parts.model, 1), calls(expected_calls(program, parts.model, 1)) {
    for (ExpectedCall& call : calls) call.identity.step = step;
    check.begin(program, step);
  }
  void make(const ExpectedCall& call) { check.on_call({call.group, call.channel, call.identity}); }
  // The message of the refusal; "" where the call is accepted.
  std::string refusal(const ExpectedCall& call) {
    return message_of([&] { make(call); });
  }
  static std::string message_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const CollectiveError& error) {
      return error.what();
    }
    return "";
  }

  const StepProgram& program;
  ProgramCheck check;
  std::vector<ExpectedCall> calls;
};

void with_checked(const std::function<void(Checked&)>& body) {
  const test::TemporaryDirectory directory;
  JobConfig config = test::model_t(1);
  config.data.train = {{test::write_tokens(directory / "tokens.bin", 400, 64), 1.0}};
  test::run_ranks(config, 1, [&](test::RankParts& parts) {
    Checked checked(parts, 7);
    body(checked);
  });
}

TEST(ProgramCheck, TheCallsOfTheProgramPass) {
  with_checked([](Checked& c) {
    for (const ExpectedCall& call : c.calls) EXPECT_EQ(c.refusal(call), "");
    EXPECT_EQ(Checked::message_of([&] { c.check.end(); }), "");
  });
}

// One thread makes the calls of all communicators, so a call left out on one of them shows at the next call of any: the step cannot first stall.
TEST(ProgramCheck, TheOrderIsOneOverAllCommunicators) {
  with_checked([](Checked& c) {
    const std::string message = c.refusal(c.calls[1]);
    EXPECT_NE(message.find("program check on dp:0/gather: all_gather root forward, step 7"), std::string::npos)
        << message;
    EXPECT_NE(
        message.find("instead of all_reduce tokens forward, step 7, 1 i64 sum on world/gather; it was not issued"),
        std::string::npos)
        << message;
  });
}

TEST(ProgramCheck, ASwappedPairIsRefusedAndBothAreNamed) {
  with_checked([](Checked& c) {
    std::vector<ExpectedCall> gathers;
    for (const ExpectedCall& call : c.calls) {
      if (call.identity.op == CollectiveOp::kAllGather) gathers.push_back(call);
    }
    c.make(c.calls[0]);
    c.make(gathers[0]);
    const std::string message = c.refusal(gathers[2]);
    EXPECT_NE(message.find("program check on dp:0/gather: all_gather block.1 forward, step 7"), std::string::npos)
        << message;
    EXPECT_NE(message.find("instead of tag block.0 forward; it was not issued"), std::string::npos) << message;
    EXPECT_EQ(c.refusal(gathers[1]), "") << "a refused call takes no place in the program";
  });
}

TEST(ProgramCheck, EveryFieldOfACallIsCompared) {
  with_checked([](Checked& c) {
    const ExpectedCall right = c.calls.front();
    const std::vector<std::pair<std::string, std::function<void(CollectiveIdentity&)>>> wrongs = {
        {"instead of count 1;", [](CollectiveIdentity& i) { i.num_elements = 2; }},
        {"instead of dtype i64;", [](CollectiveIdentity& i) { i.dtype = DType::kUInt64; }},
        {"instead of reduce op sum;", [](CollectiveIdentity& i) { i.reduce = ReduceOp::kMax; }},
        {"instead of op all_reduce;", [](CollectiveIdentity& i) { i.op = CollectiveOp::kReduceScatter; }},
        {"instead of step 7;", [](CollectiveIdentity& i) { i.step = 6; }},
        {"instead of root -1;", [](CollectiveIdentity& i) { i.root = 0; }},
    };
    for (const auto& [words, change] : wrongs) {
      ExpectedCall wrong = right;
      change(wrong.identity);
      const std::string message = c.refusal(wrong);
      EXPECT_NE(message.find(words), std::string::npos) << message;
    }
    EXPECT_EQ(c.refusal(right), "");
  });
}

TEST(ProgramCheck, ACallTooManyAndACallLeftOutAreNamed) {
  with_checked([](Checked& c) {
    for (const ExpectedCall& call : c.calls) c.make(call);
    EXPECT_NE(c.refusal(c.calls.back()).find("is one call more than the program makes"), std::string::npos);
    c.check.begin(c.program, 7);
    for (std::size_t i = 0; i + 1 < c.calls.size(); ++i) c.make(c.calls[i]);
    const std::string message = Checked::message_of([&] { c.check.end(); });
    EXPECT_NE(message.find("program check on world/reduce: all_reduce norm update, step 7"), std::string::npos)
        << message;
    EXPECT_NE(message.find("was left out"), std::string::npos) << message;
    EXPECT_EQ(c.refusal(c.calls.front()), "") << "nothing is expected between programs";
  });
}

}  // namespace
}  // namespace tessera
