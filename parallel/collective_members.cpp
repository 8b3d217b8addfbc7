#include "parallel/collective_members.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tessera {

GroupMembers::GroupMembers(const std::vector<RankLog>& logs) {
  int world_size = 0;
  for (const RankLog& log : logs) {
    world_size = std::max(world_size, log.owner.world_size);
    for (const LoggedCommunicator& communicator : log.communicators) {
      // Size 0: the reader's mark of a damaged entry.
      if (communicator.size > 0)
        world_of_member_.try_emplace({communicator.group, communicator.position}, log.owner.world_rank);
    }
  }
  world_of_logical_.assign(static_cast<std::size_t>(world_size), -1);
  if (logs.empty()) return;
  place_ranks_without_a_log(logs);
  const MeshShape& mesh = logs.front().owner.mesh;
  const auto num_ranks = static_cast<double>(mesh.dp) * mesh.pp * mesh.tp;
  if (mesh.dp < 1 || mesh.pp < 1 || mesh.tp < 1 || num_ranks != world_size) return;
  if (mesh.shard_size < 0 || (mesh.shard_size > 0 && mesh.dp % mesh.shard_size != 0)) return;
  for (Group& group : canonical_groups(mesh)) logical_of_group_[group.name()] = std::move(group.members);
}

// Where all others are placed in order, or where only one is left, there is one place for it.
void GroupMembers::place_ranks_without_a_log(const std::vector<RankLog>& logs) {
  std::vector<bool> has_log(world_of_logical_.size(), false);
  bool canonical = true;
  for (const RankLog& log : logs) {
    const auto logical = static_cast<std::size_t>(log.owner.logical_rank);
    canonical &= log.owner.logical_rank == log.owner.world_rank;
    if (log.owner.logical_rank >= 0 && logical < world_of_logical_.size())
      world_of_logical_[logical] = log.owner.world_rank;
    has_log.at(static_cast<std::size_t>(log.owner.world_rank)) = true;
  }
  std::vector<int> without_log;
  for (std::size_t rank = 0; rank < has_log.size(); ++rank) {
    if (!has_log[rank]) without_log.push_back(static_cast<int>(rank));
  }
  if (canonical) {
    for (const int rank : without_log) world_of_logical_[static_cast<std::size_t>(rank)] = rank;
    return;
  }
  const auto open = std::find(world_of_logical_.begin(), world_of_logical_.end(), -1);
  if (without_log.size() == 1 && open != world_of_logical_.end()) *open = without_log.front();
}

int GroupMembers::world_rank(const std::string& group, int position) const {
  if (position < 0) return -1;
  if (const auto known = world_of_member_.find({group, position}); known != world_of_member_.end())
    return known->second;
  auto logical = static_cast<std::size_t>(position);
  if (group != "world") {
    const auto members = logical_of_group_.find(group);
    if (members == logical_of_group_.end() || logical >= members->second.size()) return -1;
    logical = static_cast<std::size_t>(members->second[logical]);
  }
  return logical < world_of_logical_.size() ? world_of_logical_[logical] : -1;
}

bool GroupMembers::to_world(const std::string& group, CollectiveIdentity& identity) const {
  const int root = identity.root < 0 ? -1 : world_rank(group, identity.root);
  const int peer = identity.peer < 0 ? -1 : world_rank(group, identity.peer);
  if ((root < 0 && identity.root >= 0) || (peer < 0 && identity.peer >= 0)) return false;
  identity.root = root;
  identity.peer = peer;
  return true;
}

std::string describe(const CollectiveIdentity& identity, bool by_group_rank) {
  const bool names_members = identity.root >= 0 || identity.peer >= 0;
  return describe(identity) + (by_group_rank && names_members ? ", by group rank" : "");
}

std::vector<std::string> differing_fields(const CollectiveIdentity& mine, const CollectiveIdentity& other,
                                          bool by_group_rank) {
  std::vector<std::string> fields = differing_fields(mine, other);
  if (!by_group_rank) return fields;
  for (std::string& field : fields) {
    for (const std::string_view name : {"root ", "sender ", "receiver "}) {
      if (field.starts_with(name)) field.insert(name.size(), "group rank ");
    }
  }
  return fields;
}

}  // namespace tessera
