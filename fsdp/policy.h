// What the words of the config's `fsdp` section mean for one rank of a mesh.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fsdp/schedule.h"
#include "parallel/mesh.h"
#include "runtime/config/load.h"

namespace tessera {

// Who holds which part of the units, and the groups that move them.
//
//   strategy        parts           parameters from   gradients to
//   full_shard      one per dp rank all_gather dp     reduce_scatter dp
//   shard_grad_op   one per dp rank all_gather dp     reduce_scatter dp
//   hybrid_shard    one per rank of all_gather shard  reduce_scatter shard, then all_reduce replica
//                   a shard group
//   no_shard        one, whole      –                 all_reduce dp
struct ShardGroups {
  int num_shards = 1, shard = 0;      // this rank holds part `shard` of each unit …
  int num_replicas = 1, replica = 0;  // … and so do num_replicas - 1 other ranks
  std::string shard_group;            // whose members hold the parts; "": every rank holds all
  std::string replica_group;          // whose members hold the same part; "": nobody else does
};
ShardGroups shard_groups(const FsdpConfig& config, const MeshShape& mesh, int logical_rank);

// Logical ranks that hold the same shards, by set, ascending; a rank whose shards nobody else holds is a set of its own.
std::vector<std::vector<int>> replica_sets(const FsdpConfig& config, const MeshShape& mesh);

// The sum of the ranks' parts of a hash (by logical rank), of each set the first one's; and the first two of a set whose parts differ, -1: none do.
struct ReplicatedSum {
  std::uint64_t sum = 0;
  int first = -1, other = -1;
};
ReplicatedSum sum_of_replicas(std::span<const std::uint64_t> parts, const std::vector<std::vector<int>>& sets);

// The mesh with its shard groups. ranks_per_host: dp neighbours on each host, where `fsdp.shard_size: host` needs it; 0: hosts hold different
// numbers of them. ConfigError where shard groups do not divide dp, or are no subtrees of the sum over lanes.
MeshShape make_mesh(const FsdpConfig& config, const ResolvedBatch& batch, std::int64_t ranks_per_host);

// Schedules of a rank, without title.
ScheduleOptions schedule_options(const FsdpConfig& config, const ResolvedBatch& batch, const ShardGroups& groups);

}  // namespace tessera
