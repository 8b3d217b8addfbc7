#include "tests/support/conformance/identity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera::testing {
namespace {

// The last rank is the one that goes wrong.
struct Member {
  explicit Member(ConformanceRank& at, FingerprintLevel level)
      : rank(at.rank),
        size(at.num_ranks),
        wrong(at.rank == at.num_ranks - 1),
        communicator(
            at.factory->create(canonical_groups({.dp = at.num_ranks})[0], {.channel = "gather", .fingerprint = level})),
        owner(device.create_stream("identity", StreamMode::kQueue)),
        stream(owner.view()) {}
  int rank, size;
  bool wrong;
  CpuDevice device;
  std::unique_ptr<Communicator> communicator;
  Stream owner;
  StreamView stream;
};

// The message of the error that `call` ends with, through the stream; "" where there is none.
std::string refusal(Member& member, const std::function<void()>& call) {
  try {
    call();
    member.stream.synchronize();
  } catch (const CollectiveError& error) {
    return error.what();
  }
  return "";
}

// A_r = 1000 + r and B_r = 2000 + r, summed one after the other; the last rank has them in the wrong order.
struct Swapped {
  explicit Swapped(Member& m)
      : member(m), a(1000.0F + static_cast<float>(m.rank)), b(2000.0F + static_cast<float>(m.rank)) {}
  void run() {
    sum(member.wrong ? b : a, member.wrong ? "B" : "A");
    sum(member.wrong ? a : b, member.wrong ? "A" : "B");
  }
  void sum(float& value, const char* what) {
    member.communicator->all_reduce({.data = &value, .count = 1, .tag = {.what = what, .phase = "backward", .step = 3}},
                                    member.stream);
  }
  Member& member;
  float a, b;
};

void a_swapped_pair_corrupts_in_silence_where_nobody_looks(ConformanceRank& at) {
  if (at.num_ranks < 2) return;
  Member member(at, FingerprintLevel::kOff);
  Swapped pair(member);
  EXPECT_EQ(refusal(member, [&] { pair.run(); }), "");
  // Every rank but the last puts A into the first sum, the last one B.
  const float n = static_cast<float>(at.num_ranks);
  const float ranks = n * (n - 1) / 2;
  EXPECT_EQ(member.wrong ? pair.b : pair.a, 1000.0F * (n - 1) + 2000.0F + ranks);
  EXPECT_EQ(member.wrong ? pair.a : pair.b, 2000.0F * (n - 1) + 1000.0F + ranks);
}

void a_swapped_pair_is_refused_before_its_data_is_used(ConformanceRank& at) {
  if (at.num_ranks < 2) return;
  Member member(at, FingerprintLevel::kStrict);
  Swapped pair(member);
  const std::string message = refusal(member, [&] { pair.run(); });
  EXPECT_EQ(pair.a, 1000.0F + static_cast<float>(at.rank));
  EXPECT_EQ(pair.b, 2000.0F + static_cast<float>(at.rank));
  EXPECT_NE(message.find("collective mismatch at call 0 of world/gather"), std::string::npos) << message;
  EXPECT_NE(message.find("A backward"), std::string::npos) << message;
  EXPECT_NE(message.find("B backward"), std::string::npos) << message;
  EXPECT_NE(message.find("tag "), std::string::npos) << message;
}

void histories_that_differ_are_found_once_a_step(ConformanceRank& at) {
  if (at.num_ranks < 2) return;
  Member member(at, FingerprintLevel::kStep);
  float value = 1;
  const auto call = [&](const char* what) {
    member.communicator->all_reduce({.data = &value, .count = 1, .tag = {.what = what, .phase = "x"}}, member.stream);
  };
  EXPECT_EQ(refusal(member,
                    [&] {
                      call("A");
                      member.communicator->compare_history(5, member.stream);
                    }),
            "");
  call(member.wrong ? "C" : "B");
  const std::string message = refusal(member, [&] { member.communicator->compare_history(5, member.stream); });
  EXPECT_NE(message.find("the calls of world/gather before call 3 differ"), std::string::npos) << message;
  EXPECT_NE(message.find("history "), std::string::npos) << message;
}

// One call per kind of difference. Every rank reports both sides.
void calls_that_differ_in_one_field_name_it_on_every_rank(ConformanceRank& at) {
  if (at.num_ranks < 2) return;
  // A call as it is written out, and as the field in which it differs.
  struct Side {
    std::string whole, field;
    bool whole_in(const std::string& text) const { return text.find(whole) != std::string::npos; }
    bool field_in(const std::string& text) const { return text.find(field) != std::string::npos; }
  };
  struct Case {
    Side right, wrong;
    std::function<void(Member&, std::vector<float>&)> call;
  };
  const auto n = static_cast<std::size_t>(at.num_ranks);
  std::vector<Case> cases;
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{8}, std::uint64_t{1'000'000}}) {
    const auto side = [](std::uint64_t elements) {
      return Side{fmt::format(", {} fp32", elements), fmt::format("count {},", elements)};
    };
    cases.push_back({side(count), side(count - 1), [count](Member& m, std::vector<float>& data) {
                       m.communicator->all_reduce({.data = data.data(), .count = count - (m.wrong ? 1 : 0)}, m.stream);
                     }});
    cases.push_back(
        {side(count), side(count - 1), [count](Member& m, std::vector<float>& data) {
           const std::uint64_t mine = count - (m.wrong ? 1 : 0);
           m.communicator->all_gather(
               {.input = data.data() + static_cast<std::size_t>(m.rank) * mine, .output = data.data(), .count = mine},
               m.stream);
         }});
  }
  cases.push_back({{"4 fp32", "dtype fp32"}, {"4 i32", "dtype i32"}, [](Member& m, std::vector<float>& data) {
                     m.communicator->all_reduce(
                         {.data = data.data(), .count = 4, .dtype = m.wrong ? DType::kInt32 : DType::kFloat32},
                         m.stream);
                   }});
  cases.push_back(
      {{"fp32 sum", "reduce op sum"}, {"fp32 max", "reduce op max"}, [](Member& m, std::vector<float>& data) {
         m.communicator->all_reduce(
             {.data = data.data(), .count = 4, .reduce = m.wrong ? ReduceOp::kMax : ReduceOp::kSum}, m.stream);
       }});
  cases.push_back({{", root ", "root "}, {", root ", "root "}, [](Member& m, std::vector<float>& data) {
                     m.communicator->broadcast(
                         {.data = data.data(), .count = 4, .dtype = DType::kFloat32, .root = m.wrong ? 1 : 0},
                         m.stream);
                   }});
  cases.push_back(
      {{": all_reduce", "op all_reduce"}, {": barrier", "op barrier"}, [](Member& m, std::vector<float>& data) {
         if (m.wrong) {
           m.communicator->barrier({}, m.stream);
         } else {
           m.communicator->all_reduce({.data = data.data(), .count = 4}, m.stream);
         }
       }});
  for (const Case& one : cases) {
    Member member(at, FingerprintLevel::kStrict);
    std::vector<float> data(1'000'000 * n, 1.0F);
    const std::string message = refusal(member, [&] { one.call(member, data); });
    EXPECT_EQ(data, std::vector<float>(data.size(), 1.0F)) << "data was used";
    // The larger side is written out; of two equal ones that of the lower world rank, which may be the wrong one.
    const bool usual = one.right.whole_in(message) && one.wrong.field_in(message);
    const bool turned = at.num_ranks == 2 && one.wrong.whole_in(message) && one.right.field_in(message);
    EXPECT_TRUE(usual || turned) << message;
  }
}

}  // namespace

std::vector<ConformanceCase> identity_cases() {
  return {
      {"ASwappedPairCorruptsInSilenceWhereNobodyLooks", a_swapped_pair_corrupts_in_silence_where_nobody_looks},
      {"ASwappedPairIsRefusedBeforeItsDataIsUsed", a_swapped_pair_is_refused_before_its_data_is_used},
      {"HistoriesThatDifferAreFoundOnceAStep", histories_that_differ_are_found_once_a_step},
      {"CallsThatDifferInOneFieldNameItOnEveryRank", calls_that_differ_in_one_field_name_it_on_every_rank},
  };
}

}  // namespace tessera::testing
