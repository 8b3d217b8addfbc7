// The mesh as data: axes, coordinates, groups in canonical order. Pure functions; nothing here communicates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct Coordinates {
  int dp = 0, pp = 0, tp = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

struct MeshShape {
  int dp = 1, pp = 1, tp = 1;
  // hybrid_shard: so many neighbours along dp hold one copy of the parameters between them; divides dp. 0: no such groups.
  int shard_size = 0;
  int num_ranks() const { return dp * pp * tp; }
  // "dp 2 × pp 1 × tp 1", "dp 4 (2 × shard 2) × pp 1 × tp 1".
  std::string str() const;
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

// ((dp·PP)+pp)·TP+tp: TP innermost, DP outermost.
int logical_rank(const MeshShape& shape, const Coordinates& at);
Coordinates coordinates_of(const MeshShape& shape, int logical_rank);

enum class Axis : std::uint8_t { kWorld, kTp, kPp, kDp, kShard, kReplica };

// Ranks that share all coordinates but one axis, in order of that axis. Of a dp group, kShard are its neighbours that hold one copy of the
// parameters, kReplica those that hold the same part of their copies.
struct Group {
  Axis axis = Axis::kWorld;
  int index = 0;                            // among the groups of its axis
  std::vector<int> members;                 // logical ranks, ascending along the axis
  std::string name() const;                 // "world", "tp:0", "pp:3", "dp:1", "shard:0", "replica:2"
  int position_of(int logical_rank) const;  // -1 where not a member
  friend bool operator==(const Group&, const Group&) = default;
};

// world, then all tp, pp, dp, shard and replica groups by index. Every process walks this list in this order, member or not.
std::vector<Group> canonical_groups(const MeshShape& shape);
// A hash of the ordered list: equal on every rank, or somebody has another list.
std::uint64_t hash_of(const std::vector<Group>& groups);
// Checks that `groups` is the canonical list; InternalError naming the first difference.
void check_canonical(const MeshShape& shape, const std::vector<Group>& groups);

// The permutation world rank → logical rank.
struct Placement {
  std::vector<int> logical_of_world;
  int world_of_logical(int logical) const;
  static Placement canonical(int num_ranks);
};

}  // namespace tessera
