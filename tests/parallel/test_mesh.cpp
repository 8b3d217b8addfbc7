#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parallel/mesh.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

std::vector<std::vector<int>> members_of(const std::vector<Group>& groups, Axis axis) {
  std::vector<std::vector<int>> members;
  for (const Group& group : groups) {
    if (group.axis == axis) members.push_back(group.members);
  }
  return members;
}

TEST(Mesh, GroupsOfTwoByTwoByTwo) {
  const std::vector<Group> groups = canonical_groups({.dp = 2, .pp = 2, .tp = 2});
  using Lists = std::vector<std::vector<int>>;
  EXPECT_EQ(members_of(groups, Axis::kWorld), (Lists{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(members_of(groups, Axis::kTp), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(members_of(groups, Axis::kPp), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(members_of(groups, Axis::kDp), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Mesh, GroupsAreNamedAndOrderedWorldTpPpDp) {
  std::vector<std::string> names;
  for (const Group& group : canonical_groups({.dp = 2, .pp = 1, .tp = 2})) names.push_back(group.name());
  EXPECT_EQ(names, (std::vector<std::string>{"world", "tp:0", "tp:1", "pp:0", "pp:1", "pp:2", "pp:3", "dp:0", "dp:1"}));
}

TEST(Mesh, ShardGroupsAreNeighboursAlongDpAndReplicaGroupsTheirCounterparts) {
  const std::vector<Group> groups = canonical_groups({.dp = 4, .pp = 1, .tp = 2, .shard_size = 2});
  using Lists = std::vector<std::vector<int>>;
  EXPECT_EQ(members_of(groups, Axis::kDp), (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(members_of(groups, Axis::kShard), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(members_of(groups, Axis::kReplica), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups.back().name(), "replica:3");
  EXPECT_TRUE(members_of(canonical_groups({.dp = 4}), Axis::kShard).empty());
  EXPECT_THROW(canonical_groups({.dp = 4, .pp = 1, .tp = 1, .shard_size = 3}), InternalError);
}

TEST(Mesh, TpIsInnermostAndDpOutermost) {
  const MeshShape shape{.dp = 2, .pp = 3, .tp = 4};
  EXPECT_EQ(logical_rank(shape, {.dp = 0, .pp = 0, .tp = 1}), 1);
  EXPECT_EQ(logical_rank(shape, {.dp = 0, .pp = 1, .tp = 0}), 4);
  EXPECT_EQ(logical_rank(shape, {.dp = 1, .pp = 0, .tp = 0}), 12);
  EXPECT_EQ(logical_rank(shape, {.dp = 1, .pp = 2, .tp = 3}), 23);
  EXPECT_EQ(coordinates_of(shape, 23), (Coordinates{.dp = 1, .pp = 2, .tp = 3}));
  EXPECT_EQ(coordinates_of(shape, 17), (Coordinates{.dp = 1, .pp = 1, .tp = 1}));
}

TEST(Mesh, EveryRankIsInExactlyOneGroupPerAxis) {
  for (const MeshShape shape :
       {MeshShape{2, 2, 2}, MeshShape{4, 2, 1}, MeshShape{1, 2, 4}, MeshShape{8, 1, 1}, MeshShape{3, 2, 5}}) {
    const std::vector<Group> groups = canonical_groups(shape);
    for (const Axis axis : {Axis::kWorld, Axis::kTp, Axis::kPp, Axis::kDp}) {
      std::multiset<int> seen;
      for (const auto& members : members_of(groups, axis)) seen.insert(members.begin(), members.end());
      ASSERT_EQ(seen.size(), static_cast<std::size_t>(shape.num_ranks())) << shape.str();
      for (int rank = 0; rank < shape.num_ranks(); ++rank) EXPECT_EQ(seen.count(rank), 1U) << shape.str();
    }
  }
}

TEST(Mesh, HashOfTheGroupListTellsMeshesApartAndRepeats) {
  std::set<std::uint64_t> hashes;
  for (const MeshShape shape : {MeshShape{2, 2, 2}, MeshShape{4, 2, 1}, MeshShape{1, 2, 4}, MeshShape{8, 1, 1}}) {
    const std::uint64_t hash = hash_of(canonical_groups(shape));
    for (int rank = 0; rank < shape.num_ranks(); ++rank) EXPECT_EQ(hash_of(canonical_groups(shape)), hash);
    hashes.insert(hash);
  }
  EXPECT_EQ(hashes.size(), 4U);
}

TEST(Mesh, AShuffledListIsCaught) {
  for (const MeshShape shape : {MeshShape{2, 2, 2}, MeshShape{4, 2, 1}, MeshShape{1, 2, 4}, MeshShape{8, 1, 1}}) {
    const std::vector<Group> groups = canonical_groups(shape);
    EXPECT_NO_THROW(check_canonical(shape, groups));
    std::vector<Group> swapped = groups;
    std::swap(swapped[1], swapped[2]);
    EXPECT_NE(hash_of(swapped), hash_of(groups)) << shape.str();
    EXPECT_THROW(check_canonical(shape, swapped), InternalError) << shape.str();
    std::vector<Group> shorter(groups.begin(), groups.end() - 1);
    EXPECT_NE(hash_of(shorter), hash_of(groups)) << shape.str();
    EXPECT_THROW(check_canonical(shape, shorter), InternalError) << shape.str();
  }
}

TEST(Mesh, TheFirstDifferenceIsNamed) {
  const MeshShape shape{.dp = 2, .pp = 1, .tp = 2};
  std::vector<Group> groups = canonical_groups(shape);
  std::swap(groups[1], groups[2]);
  try {
    check_canonical(shape, groups);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("group 1 of dp 2 × pp 1 × tp 2 is tp:1 (2,3), expected tp:0 (0,1)"),
              std::string::npos)
        << error.what();
  }
}

TEST(Mesh, CoordinatesOutsideTheMeshAreRefused) {
  const MeshShape shape{.dp = 2, .pp = 2, .tp = 2};
  EXPECT_THROW(logical_rank(shape, {.dp = 2, .pp = 0, .tp = 0}), InternalError);
  EXPECT_THROW(coordinates_of(shape, 8), InternalError);
  EXPECT_THROW(canonical_groups({.dp = 0, .pp = 1, .tp = 1}), InternalError);
}

TEST(Mesh, PositionInAGroupFollowsTheAxis) {
  const std::vector<Group> groups = canonical_groups({.dp = 2, .pp = 2, .tp = 2});
  const Group& dp1 = *std::find_if(groups.begin(), groups.end(), [](const Group& g) { return g.name() == "dp:1"; });
  EXPECT_EQ(dp1.position_of(1), 0);
  EXPECT_EQ(dp1.position_of(5), 1);
  EXPECT_EQ(dp1.position_of(4), -1);
}

TEST(Placement, IsAPermutationReadBothWays) {
  const Placement placement{{2, 0, 1}};
  EXPECT_EQ(placement.world_of_logical(2), 0);
  EXPECT_EQ(placement.world_of_logical(0), 1);
  EXPECT_EQ(placement.world_of_logical(1), 2);
  EXPECT_THROW(placement.world_of_logical(3), InternalError);
  EXPECT_EQ(Placement::canonical(3).logical_of_world, (std::vector<int>{0, 1, 2}));
}

}  // namespace
}  // namespace tessera
