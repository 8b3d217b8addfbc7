#include "fsdp/policy.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "runtime/base/error.h"

namespace tessera {
namespace {

const Group& group_of(const std::vector<Group>& groups, Axis axis, int logical_rank) {
  for (const Group& group : groups) {
    if (group.axis == axis && group.position_of(logical_rank) >= 0) return group;
  }
  throw InternalError(fmt::format("mesh: rank {} is in no group of an axis", logical_rank));
}

FullParameters full_parameters(const FsdpConfig& config) {
  if (config.strategy == "no_shard") return FullParameters::kAlways;
  if (config.strategy == "shard_grad_op") return FullParameters::kStep;
  return config.reshard_after_forward == "false" ? FullParameters::kMicroBatch : FullParameters::kSegment;
}

BackwardPrefetch backward_prefetch(const std::string& word) {
  if (word == "backward_pre") return BackwardPrefetch::kPre;
  if (word == "backward_post") return BackwardPrefetch::kPost;
  require(word == "none", "fsdp.backward_prefetch was checked when it was loaded");
  return BackwardPrefetch::kNone;
}

}  // namespace

ShardGroups shard_groups(const FsdpConfig& config, const MeshShape& mesh, int logical_rank) {
  const std::vector<Group> groups = canonical_groups(mesh);
  const Group& dp = group_of(groups, Axis::kDp, logical_rank);
  ShardGroups out;
  const auto share = [&](const Group& group) {
    out.num_shards = static_cast<int>(group.members.size());
    out.shard = group.position_of(logical_rank);
    out.shard_group = group.name();
  };
  const auto replicate = [&](const Group& group) {
    out.num_replicas = static_cast<int>(group.members.size());
    out.replica = group.position_of(logical_rank);
    out.replica_group = group.name();
  };
  if (config.strategy == "no_shard") {
    replicate(dp);
  } else if (mesh.shard_size == 0) {
    share(dp);
  } else {
    share(group_of(groups, Axis::kShard, logical_rank));
    if (mesh.shard_size < mesh.dp) replicate(group_of(groups, Axis::kReplica, logical_rank));
  }
  return out;
}

std::vector<std::vector<int>> replica_sets(const FsdpConfig& config, const MeshShape& mesh) {
  const bool hybrid = config.strategy != "no_shard" && mesh.shard_size > 0;
  std::vector<std::vector<int>> sets;
  if (config.strategy != "no_shard" && !hybrid) {
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) sets.push_back({rank});
    return sets;
  }
  for (Group& group : canonical_groups(mesh)) {
    if (group.axis == (hybrid ? Axis::kReplica : Axis::kDp)) sets.push_back(std::move(group.members));
  }
  return sets;
}

ReplicatedSum sum_of_replicas(std::span<const std::uint64_t> parts, const std::vector<std::vector<int>>& sets) {
  ReplicatedSum out;
  for (const std::vector<int>& set : sets) {
    const std::uint64_t part = parts[static_cast<std::size_t>(set.front())];
    for (const int rank : set) {
      if (out.first < 0 && parts[static_cast<std::size_t>(rank)] != part) {
        out.first = set.front();
        out.other = rank;
      }
    }
    out.sum += part;
  }
  return out;
}

MeshShape make_mesh(const FsdpConfig& config, const ResolvedBatch& batch, std::int64_t ranks_per_host) {
  MeshShape mesh{.dp = static_cast<int>(batch.dp), .pp = static_cast<int>(batch.pp), .tp = static_cast<int>(batch.tp)};
  if (config.strategy != "hybrid_shard") return mesh;
  std::int64_t size = ranks_per_host;
  const bool by_host = config.shard_size == "host";
  if (by_host && size == 0) {
    throw ConfigError("fsdp.shard_size: host needs equally many neighbours of dp on every host",
                      "place ranks host by host, or set a number");
  }
  if (!by_host) {
    const std::string& text = config.shard_size;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    require(error == std::errc{} && end == text.data() + text.size() && size > 0,
            "fsdp.shard_size was checked when it was loaded");
  }
  const std::string found = by_host ? fmt::format("host ({} ranks)", size) : fmt::format("{}", size);
  if (size > batch.dp || batch.dp % size != 0) {
    throw ConfigError(fmt::format("fsdp.shard_size: {} does not divide dp {}", found, batch.dp));
  }
  // A group adds its members' gradients first. In the tree that adds all of dp neighbour by neighbour, only powers of two are nodes.
  if (size != batch.dp && !std::has_single_bit(static_cast<std::uint64_t>(size))) {
    throw ConfigError(
        fmt::format("fsdp.shard_size: {} is neither a power of two nor dp {}, so its sums would be in another order",
                    found, batch.dp));
  }
  mesh.shard_size = static_cast<int>(size);
  return mesh;
}

ScheduleOptions schedule_options(const FsdpConfig& config, const ResolvedBatch& batch, const ShardGroups& groups) {
  ScheduleOptions options;
  options.num_micro_batches = static_cast<int>(batch.micro_batches_per_rank);
  options.micro_batches_per_lane = static_cast<int>(batch.accumulation);
  options.full_parameters = full_parameters(config);
  options.reduce_every_micro_batch = config.reduce == "every_micro_batch";
  options.backward_prefetch = backward_prefetch(config.backward_prefetch);
  options.forward_prefetch_depth = static_cast<int>(config.forward_prefetch_depth);
  options.max_inflight_all_gathers = static_cast<int>(config.max_inflight_all_gathers);
  options.shard_group = groups.shard_group;
  options.replica_group = groups.replica_group;
  return options;
}

}  // namespace tessera
