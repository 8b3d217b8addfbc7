#include "parallel/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

std::string_view prefix_of(Axis axis) {
  switch (axis) {
    case Axis::kWorld: return "world";
    case Axis::kTp: return "tp";
    case Axis::kPp: return "pp";
    case Axis::kDp: return "dp";
    case Axis::kShard: return "shard";
    case Axis::kReplica: return "replica";
  }
  throw InternalError("mesh: unknown axis");
}

void check_shape(const MeshShape& shape) {
  require(shape.dp > 0 && shape.pp > 0 && shape.tp > 0,
          fmt::format("mesh: every axis needs at least one rank, got {}", shape.str()));
  require(shape.shard_size >= 0 && (shape.shard_size == 0 || shape.dp % shape.shard_size == 0),
          fmt::format("mesh: shard groups of {} do not divide dp {}", shape.shard_size, shape.dp));
}

std::string describe(const Group& group) {
  return fmt::format("{} ({})", group.name(), fmt::join(group.members, ","));
}

// The groups of one axis in order of the lowest member, which is the order in which the walk over ranks meets them.
void append_axis(std::vector<Group>& groups, const MeshShape& shape, Axis axis, int Coordinates::*along, int extent) {
  int index = 0;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    Coordinates at = coordinates_of(shape, rank);
    if (at.*along != 0) continue;
    Group group{axis, index++, {}};
    for (at.*along = 0; at.*along < extent; ++(at.*along)) group.members.push_back(logical_rank(shape, at));
    groups.push_back(std::move(group));
  }
}

// The groups of one axis that divide each dp group: `size` members, `stride` dp coordinates apart.
void append_dp_parts(std::vector<Group>& groups, const MeshShape& shape, Axis axis, int size, int stride) {
  int index = 0;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    Coordinates at = coordinates_of(shape, rank);
    if (at.dp / stride % size != 0) continue;
    Group group{axis, index++, {}};
    for (int n = 0; n < size; ++n, at.dp += stride) group.members.push_back(logical_rank(shape, at));
    groups.push_back(std::move(group));
  }
}

}  // namespace

std::string MeshShape::str() const {
  const std::string parts = shard_size > 0 ? fmt::format(" ({} × shard {})", dp / shard_size, shard_size) : "";
  return fmt::format("dp {}{} × pp {} × tp {}", dp, parts, pp, tp);
}

int logical_rank(const MeshShape& shape, const Coordinates& at) {
  check_shape(shape);
  require(at.dp >= 0 && at.dp < shape.dp && at.pp >= 0 && at.pp < shape.pp && at.tp >= 0 && at.tp < shape.tp,
          fmt::format("mesh: coordinates (dp {}, pp {}, tp {}) lie outside {}", at.dp, at.pp, at.tp, shape.str()));
  return (at.dp * shape.pp + at.pp) * shape.tp + at.tp;
}

Coordinates coordinates_of(const MeshShape& shape, int logical_rank) {
  check_shape(shape);
  require(logical_rank >= 0 && logical_rank < shape.num_ranks(),
          fmt::format("mesh: logical rank {} lies outside {}", logical_rank, shape.str()));
  return {logical_rank / (shape.tp * shape.pp), logical_rank / shape.tp % shape.pp, logical_rank % shape.tp};
}

std::string Group::name() const {
  return axis == Axis::kWorld ? std::string(prefix_of(axis)) : fmt::format("{}:{}", prefix_of(axis), index);
}

int Group::position_of(int logical_rank) const {
  const auto found = std::find(members.begin(), members.end(), logical_rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::vector<Group> canonical_groups(const MeshShape& shape) {
  check_shape(shape);
  Group world{Axis::kWorld, 0, std::vector<int>(static_cast<std::size_t>(shape.num_ranks()))};
  std::iota(world.members.begin(), world.members.end(), 0);
  std::vector<Group> groups{std::move(world)};
  append_axis(groups, shape, Axis::kTp, &Coordinates::tp, shape.tp);
  append_axis(groups, shape, Axis::kPp, &Coordinates::pp, shape.pp);
  append_axis(groups, shape, Axis::kDp, &Coordinates::dp, shape.dp);
  if (shape.shard_size > 0) {
    append_dp_parts(groups, shape, Axis::kShard, shape.shard_size, 1);
    append_dp_parts(groups, shape, Axis::kReplica, shape.dp / shape.shard_size, shape.shard_size);
  }
  return groups;
}

std::uint64_t hash_of(const std::vector<Group>& groups) {
  std::uint64_t hash = hash_string("groups");
  for (const Group& group : groups) hash = hash_string(describe(group), hash);
  return hash;
}

void check_canonical(const MeshShape& shape, const std::vector<Group>& groups) {
  const std::vector<Group> expected = canonical_groups(shape);
  for (std::size_t i = 0; i < std::min(groups.size(), expected.size()); ++i) {
    require(groups[i] == expected[i], fmt::format("mesh: group {} of {} is {}, expected {}", i, shape.str(),
                                                  describe(groups[i]), describe(expected[i])));
  }
  require(groups.size() == expected.size(),
          fmt::format("mesh: {} groups for {}, expected {}", groups.size(), shape.str(), expected.size()));
}

int Placement::world_of_logical(int logical) const {
  const auto found = std::find(logical_of_world.begin(), logical_of_world.end(), logical);
  require(found != logical_of_world.end(), fmt::format("placement: no world rank holds logical rank {}", logical));
  return static_cast<int>(found - logical_of_world.begin());
}

Placement Placement::canonical(int num_ranks) {
  Placement placement{std::vector<int>(static_cast<std::size_t>(num_ranks))};
  std::iota(placement.logical_of_world.begin(), placement.logical_of_world.end(), 0);
  return placement;
}

}  // namespace tessera
