#include "fsdp/policy.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace tessera {
namespace {

using Sets = std::vector<std::vector<int>>;

std::string refusal(const std::string& shard_size, std::int64_t dp, std::int64_t ranks_per_host) {
  try {
    make_mesh({.strategy = "hybrid_shard", .shard_size = shard_size}, {.dp = dp}, ranks_per_host);
  } catch (const ConfigError& error) {
    return error.line();
  }
  return "";
}

TEST(Policy, FullShardSplitsOverDpAndNoShardCopiesOverIt) {
  const MeshShape mesh{.dp = 4};
  const ShardGroups full = shard_groups({}, mesh, 3);
  EXPECT_EQ(full.num_shards, 4);
  EXPECT_EQ(full.shard, 3);
  EXPECT_EQ(full.shard_group, "dp:0");
  EXPECT_EQ(full.num_replicas, 1);
  EXPECT_EQ(full.replica_group, "");
  const ShardGroups none = shard_groups({.strategy = "no_shard"}, mesh, 3);
  EXPECT_EQ(none.num_shards, 1);
  EXPECT_EQ(none.shard_group, "");
  EXPECT_EQ(none.num_replicas, 4);
  EXPECT_EQ(none.replica, 3);
  EXPECT_EQ(none.replica_group, "dp:0");
}

TEST(Policy, HybridSplitsOverNeighboursAndCopiesOverTheirGroups) {
  const FsdpConfig config{.strategy = "hybrid_shard", .shard_size = "2"};
  const MeshShape mesh = make_mesh(config, {.dp = 6}, 6);
  EXPECT_EQ(mesh.str(), "dp 6 (3 × shard 2) × pp 1 × tp 1");
  const ShardGroups groups = shard_groups(config, mesh, 5);
  EXPECT_EQ(groups.num_shards, 2);
  EXPECT_EQ(groups.shard, 1);
  EXPECT_EQ(groups.shard_group, "shard:2");
  EXPECT_EQ(groups.num_replicas, 3);
  EXPECT_EQ(groups.replica, 2);
  EXPECT_EQ(groups.replica_group, "replica:1");
}

TEST(Policy, HybridOverAllRanksHasNoReplicas) {
  const FsdpConfig config{.strategy = "hybrid_shard", .shard_size = "3"};
  const ShardGroups groups = shard_groups(config, make_mesh(config, {.dp = 3}, 3), 1);
  EXPECT_EQ(groups.num_shards, 3);
  EXPECT_EQ(groups.shard_group, "shard:0");
  EXPECT_EQ(groups.replica_group, "");
}

TEST(Policy, ShardSizeHostIsTheRanksOfAHost) {
  EXPECT_EQ(make_mesh({.strategy = "hybrid_shard"}, {.dp = 8}, 4).shard_size, 4);
  EXPECT_EQ(make_mesh({}, {.dp = 8}, 4).shard_size, 0) << "full_shard has no shard groups";
}

TEST(Policy, RefusesGroupsThatDoNotDivideDpOrAreNoNodesOfTheTree) {
  EXPECT_EQ(refusal("3", 8, 8), "fsdp.shard_size: 3 does not divide dp 8");
  EXPECT_EQ(refusal("16", 8, 8), "fsdp.shard_size: 16 does not divide dp 8");
  EXPECT_EQ(refusal("3", 6, 6),
            "fsdp.shard_size: 3 is neither a power of two nor dp 6, so its sums would be in another order");
  EXPECT_EQ(
      refusal("host", 6, 3),
      "fsdp.shard_size: host (3 ranks) is neither a power of two nor dp 6, so its sums would be in another order");
  EXPECT_EQ(
      refusal("host", 4, 0),
      "fsdp.shard_size: host needs equally many neighbours of dp on every host; hint: place ranks host by host, or "
      "set a number");
  EXPECT_EQ(refusal("3", 3, 3), "");
}

TEST(Policy, ReplicaSetsAreTheRanksThatHoldTheSame) {
  const MeshShape mesh{.dp = 4, .shard_size = 2};
  EXPECT_EQ(replica_sets({.strategy = "hybrid_shard", .shard_size = "2"}, mesh), (Sets{{0, 2}, {1, 3}}));
  EXPECT_EQ(replica_sets({.strategy = "no_shard"}, {.dp = 4}), (Sets{{0, 1, 2, 3}}));
  EXPECT_EQ(replica_sets({}, {.dp = 3}), (Sets{{0}, {1}, {2}}));
}

TEST(Policy, OfReplicasOneCountsAndOneThatDiffersIsNamed) {
  const Sets sets = {{0, 2}, {1, 3}};
  const std::vector<std::uint64_t> equal = {5, 7, 5, 7};
  EXPECT_EQ(sum_of_replicas(equal, sets).sum, 12U);
  EXPECT_EQ(sum_of_replicas(equal, sets).first, -1);
  const std::vector<std::uint64_t> other = {5, 7, 5, 8};
  EXPECT_EQ(sum_of_replicas(other, sets).first, 1);
  EXPECT_EQ(sum_of_replicas(other, sets).other, 3);
}

}  // namespace
}  // namespace tessera
