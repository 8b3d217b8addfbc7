#include "launcher/binding.h"

#include <gtest/gtest.h>

#include <thread>

#include "launcher/cpuset.h"

namespace tessera {
namespace {

using Cpus = std::vector<int>;

const Topology& eight_cores() {
  static const Topology machine = load_topology("pack:1 core:8 pu:1");
  return machine;
}

const Cpus kAll = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(Binding, OfOneUnboundRankUsesEveryCore) {
  const auto plan = plan_bindings(eight_cores(), {kAll}, std::nullopt, "auto");
  EXPECT_EQ(plan[0].num_threads, 8);
  EXPECT_EQ(plan[0].pus, kAll);
  EXPECT_EQ(plan[0].threads[3], Cpus{3});
}

TEST(Binding, SharesTheCoresOutAmongRanksThatWereGivenTheSame) {
  const auto plan = plan_bindings(eight_cores(), {kAll, kAll, kAll}, std::nullopt, "auto");
  // 8 cores over 3 ranks: 2, 3 and 3; threads are 8 ÷ 3 everywhere, so that ranks keep step.
  EXPECT_EQ(plan[0].pus, (Cpus{0, 1}));
  EXPECT_EQ(plan[1].pus, (Cpus{2, 3, 4}));
  EXPECT_EQ(plan[2].pus, (Cpus{5, 6, 7}));
  for (const RankBinding& rank : plan) EXPECT_EQ(rank.num_threads, 2);
  EXPECT_EQ(plan[2].threads, (std::vector<Cpus>{{5}, {6}}));
}

TEST(Binding, RespectsWhatMpirunBound) {
  const auto plan = plan_bindings(eight_cores(), {{0, 1, 2, 3}, {4, 5, 6, 7}}, std::nullopt, "auto");
  EXPECT_EQ(plan[0].pus, (Cpus{0, 1, 2, 3}));
  EXPECT_EQ(plan[1].pus, (Cpus{4, 5, 6, 7}));
  EXPECT_EQ(plan[0].num_threads, 4);
}

TEST(Binding, GivesAThreadBothPusOfItsCore) {
  const Topology machine = load_topology("pack:1 core:2 pu:2");
  const auto plan = plan_bindings(machine, {{0, 1, 2, 3}}, std::nullopt, "auto");
  EXPECT_EQ(plan[0].num_threads, 2) << "cores are counted, not their hardware threads";
  EXPECT_EQ(plan[0].threads, (std::vector<Cpus>{{0, 1}, {2, 3}}));
}

TEST(Binding, BindsNoThreadWhereThereAreMoreThanCores) {
  const auto plan = plan_bindings(eight_cores(), {{5}}, 2, "auto");
  EXPECT_EQ(plan[0].num_threads, 2);
  EXPECT_EQ(plan[0].pus, Cpus{5});
  EXPECT_TRUE(plan[0].threads.empty());
}

TEST(Binding, LeavesRanksAloneWhereTheyOutnumberTheCores) {
  const auto plan = plan_bindings(eight_cores(), {{0, 1}, {0, 1}, {0, 1}}, std::nullopt, "auto");
  for (const RankBinding& rank : plan) {
    EXPECT_EQ(rank.num_threads, 1);
    EXPECT_EQ(rank.pus, (Cpus{0, 1}));
    EXPECT_TRUE(rank.threads.empty());
  }
}

TEST(Binding, ChangesNothingWhereNoneIsAskedFor) {
  const auto plan = plan_bindings(eight_cores(), {kAll, kAll}, 3, "none");
  EXPECT_EQ(plan[1].pus, kAll);
  EXPECT_EQ(plan[1].num_threads, 3);
  EXPECT_TRUE(plan[1].threads.empty());
}

// What a batch system or numactl did to this very thread stays, even where the rank was given more.
TEST(Binding, OfNoneLeavesAThreadWhereItIs) {
  const Cpus given = current_cpuset();
  if (given.size() < 2) GTEST_SKIP() << "one processor: nothing could change";
  Cpus applied, left;
  std::thread([&] {
    bind_this_thread({given.back()});
    for (const int index : {0, -1}) {
      bind_thread(plan_bindings(load_topology("live"), {given}, 1, "none")[0], index);
    }
    left = current_cpuset();
    bind_thread(plan_bindings(load_topology("live"), {given}, 1, "auto")[0], -1);
    applied = current_cpuset();
  }).join();
  EXPECT_EQ(left, Cpus{given.back()});
  EXPECT_EQ(applied, given);
}

BoundRank bound(int rank, const Cpus& pus, int num_threads, int host_cores = 8, const std::string& host = "a") {
  return {rank, host, host_cores, {.pus = pus, .num_cores = static_cast<int>(pus.size()), .num_threads = num_threads}};
}

TEST(BindingWarnings, AreSilentWhereEveryThreadHasACore) {
  EXPECT_TRUE(binding_warnings({bound(0, {0, 1}, 2), bound(1, {2, 3}, 2)}).empty());
  EXPECT_TRUE(binding_warnings({bound(0, kAll, 4), bound(1, kAll, 4)}).empty()) << "shared, but enough for all";
  EXPECT_TRUE(binding_warnings({bound(0, {0}, 1, 8, "a"), bound(1, {0}, 1, 8, "b")}).empty()) << "two hosts";
}

TEST(BindingWarnings, NameTheRankWhoseThreadsOutnumberItsCores) {
  const auto warnings = binding_warnings({bound(0, {0}, 2), bound(1, {1}, 1)});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "device: 2 threads have 1 core on a: rank 0 cpuset 0; hint: mpirun --bind-to none, or tessera launch");
}

TEST(BindingWarnings, NameRanksThatShareACoreWithTheCpusetOfEach) {
  const auto warnings = binding_warnings({bound(0, {3}, 1), bound(1, {3}, 1), bound(2, {4}, 1)});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(
      warnings[0],
      "device: 2 ranks with 2 threads share 1 core on a: rank 0 cpuset 3, rank 1 cpuset 3; hint: mpirun --bind-to "
      "none, or tessera launch");
}

TEST(BindingWarnings, AskForFewerRanksWhereTheMachineHasNoMore) {
  const auto warnings = binding_warnings({bound(0, {0, 1}, 1, 2), bound(1, {0, 1}, 1, 2), bound(2, {0, 1}, 1, 2)});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("3 ranks with 3 threads share 2 cores"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("hint: fewer ranks"), std::string::npos) << warnings[0];
}

TEST(BindingSummary, SaysWhereEachRankRuns) {
  EXPECT_EQ(binding_summary({bound(0, {0, 1}, 2)}), "2 threads, cpuset 0-1 of 8 cores");
  EXPECT_EQ(binding_summary({bound(0, {0}, 1), bound(1, {1}, 1)}), "1 thread per rank, cpusets: rank 0: 0, rank 1: 1");
}

TEST(BoundRank, TravelsAsText) {
  const BoundRank rank = bound(12, {0, 1, 5}, 3, 64, "node-7");
  const BoundRank back = BoundRank::decode(rank.encode());
  EXPECT_EQ(back.world_rank, 12);
  EXPECT_EQ(back.host, "node-7");
  EXPECT_EQ(back.host_cores, 64);
  EXPECT_EQ(back.binding, rank.binding);
}

}  // namespace
}  // namespace tessera
