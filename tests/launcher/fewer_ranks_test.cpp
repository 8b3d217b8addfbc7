#include "launcher/fewer_ranks.h"

#include <gtest/gtest.h>

#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

using Hosts = std::vector<Host>;

TEST(PlacesOnHosts, AreTheSlots) {
  EXPECT_EQ(places_on_hosts({{"a", 4}, {"b", 2}}, 6, std::nullopt), (Hosts{{"a", 4}, {"b", 2}}));
  EXPECT_EQ(places_on_hosts({{"a", 4}, {"b", 2}}, 2, std::nullopt), (Hosts{{"a", 4}, {"b", 2}}));
}

TEST(PlacesOnHosts, AreRanksPerNodeWhereThoseAreGiven) {
  EXPECT_EQ(places_on_hosts({{"a", 8}, {"b"}}, 4, 2), (Hosts{{"a", 2}, {"b", 2}}));
}

TEST(PlacesOnHosts, AreEvenWhereAHostDoesNotTell) {
  EXPECT_EQ(places_on_hosts({{"a", 1}, {"b"}, {"c"}}, 7, std::nullopt), (Hosts{{"a", 3}, {"b", 3}, {"c", 3}}));
}

TEST(PlacesOnHosts, GrowWhereRanksOutnumberSlots) {  // 8 on 4: twice as many each
  EXPECT_EQ(places_on_hosts({{"a", 3}, {"b", 1}}, 8, std::nullopt), (Hosts{{"a", 6}, {"b", 2}}));
}

// Model T: 4 lanes, so dp is 1, 2 or 4.
TEST(FitRanks, TakesTheLargestNumberThatTheLanesAllow) {
  const JobConfig job = test::model_t(10);
  const FewerRanks three = fit_ranks(job, {{"a", 3}}, 4);
  EXPECT_EQ(three.num_ranks, 2);
  EXPECT_EQ(three.hosts, (Hosts{{"a", 2}}));
  const FewerRanks eight = fit_ranks(job, {{"a", 3}, {"b", 3}, {"c", 2}}, 8);
  EXPECT_EQ(eight.num_ranks, 4);
  EXPECT_EQ(eight.hosts, (Hosts{{"a", 3}, {"b", 1}})) << "hosts are filled in order, and the last is not needed";
  EXPECT_EQ(fit_ranks(job, {{"a", 1}}, 4).num_ranks, 1);
}

TEST(FitRanks, NeverTakesMoreThanTheJobHad) {
  EXPECT_EQ(fit_ranks(test::model_t(10), {{"a", 8}}, 2).num_ranks, 2);
}

TEST(FitRanks, FindsNoneWhereTheMeshIsFixed) {
  JobConfig job = test::model_t(10);
  job.mesh.dp = 4;
  const FewerRanks none = fit_ranks(job, {{"a", 2}}, 4);
  EXPECT_EQ(none.num_ranks, 0);
  EXPECT_EQ(none.why_not, "mesh: world size 2 != dp 4 × pp 1 × tp 1 = 4; hint: set mesh.dp: auto");
}

TEST(FitRanks, MindsShardGroups) {  // of 4 ranks each: two cannot form one
  JobConfig job = test::model_t(10);
  job.fsdp.strategy = "hybrid_shard";
  job.fsdp.shard_size = "4";
  EXPECT_EQ(fit_ranks(job, {{"a", 4}}, 4).num_ranks, 4);
  EXPECT_EQ(fit_ranks(job, {{"a", 2}}, 4).num_ranks, 0);
}

TEST(FitRanks, FindsNoneWhereNoHostIsLeft) {
  EXPECT_EQ(fit_ranks(test::model_t(10), {}, 4).num_ranks, 0);
  EXPECT_EQ(fit_ranks(test::model_t(10), {{"a", 0}}, 4).why_not, "they have no slots");
}

}  // namespace
}  // namespace tessera
