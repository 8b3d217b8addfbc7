#include "launcher/fewer_ranks.h"

#include <algorithm>
#include <cstdint>

#include "fsdp/policy.h"
#include "launcher/placement.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"

namespace tessera {
namespace {

std::int64_t total(const std::vector<Host>& places) {
  std::int64_t sum = 0;
  for (const Host& host : places) sum += host.slots.value_or(0);
  return sum;
}

std::vector<Host> filled(const std::vector<Host>& places, int num_ranks) {
  std::vector<Host> hosts;
  for (Host host : places) {
    host.slots = std::min(host.slots.value_or(0), num_ranks);
    num_ranks -= *host.slots;
    if (*host.slots > 0) hosts.push_back(host);
  }
  return hosts;
}

// Throws the ConfigError that the ranks would end with.
void check_job(const JobConfig& job, const std::vector<Host>& hosts, int num_ranks) {
  const ResolvedBatch batch = resolve(job, num_ranks);
  const MeshShape axes{static_cast<int>(batch.dp), static_cast<int>(batch.pp), static_cast<int>(batch.tp)};
  std::vector<std::string> host_of_rank;
  for (const Host& host : hosts)
    host_of_rank.insert(host_of_rank.end(), static_cast<std::size_t>(*host.slots), host.name);
  make_mesh(job.fsdp, batch, dp_neighbours_per_host(host_of_rank, choose_placement(job.mesh, axes).placement, axes));
}

}  // namespace

std::vector<Host> places_on_hosts(const std::vector<Host>& hosts, int num_ranks, std::optional<int> ranks_per_node) {
  std::vector<Host> places = hosts;
  const auto even = static_cast<int>((num_ranks + hosts.size() - 1) / std::max<std::size_t>(1, hosts.size()));
  const bool all_told = count_slots(hosts).has_value();
  for (Host& host : places) {
    if (ranks_per_node) {
      host.slots = ranks_per_node;
    } else if (!all_told) {
      host.slots = even;
    }
  }
  const std::int64_t sum = total(places);
  if (sum > 0 && sum < num_ranks) {
    for (Host& host : places) host.slots = static_cast<int>((std::int64_t{*host.slots} * num_ranks + sum - 1) / sum);
  }
  return places;
}

FewerRanks fit_ranks(const JobConfig& job, const std::vector<Host>& places, int most) {
  FewerRanks found;
  for (int n = static_cast<int>(std::min<std::int64_t>(most, total(places))); n > 0; --n) {
    const std::vector<Host> hosts = filled(places, n);
    try {
      check_job(job, hosts, n);
      return {n, hosts, ""};
    } catch (const ConfigError& error) {
      if (found.why_not.empty()) found.why_not = error.line();
    }
  }
  if (found.why_not.empty()) found.why_not = "they have no slots";
  return found;
}

}  // namespace tessera
