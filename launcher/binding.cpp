#include "launcher/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "launcher/cpuset.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using Cpus = std::vector<int>;

bool overlap(const Cpus& a, const Cpus& b) {
  return std::any_of(a.begin(), a.end(), [&](int pu) { return std::find(b.begin(), b.end(), pu) != b.end(); });
}

// The PUs among `allowed` of each core that has one, in the machine's order.
std::vector<Cpus> cores_of(const Topology& machine, const Cpus& allowed) {
  std::vector<Cpus> cores;
  for (const Core& core : machine.cores) {
    Cpus pus;
    std::copy_if(core.pus.begin(), core.pus.end(), std::back_inserter(pus),
                 [&](int pu) { return std::find(allowed.begin(), allowed.end(), pu) != allowed.end(); });
    if (!pus.empty()) cores.push_back(std::move(pus));
  }
  return cores;
}

Cpus joined(const std::vector<Cpus>& cores, std::size_t first, std::size_t last) {
  Cpus pus;
  for (std::size_t i = first; i < last; ++i) pus.insert(pus.end(), cores[i].begin(), cores[i].end());
  std::sort(pus.begin(), pus.end());
  return pus;
}

// The ranks that were given exactly what `rank` was given, in order.
std::vector<std::size_t> sharers(const std::vector<Cpus>& given, std::size_t rank) {
  std::vector<std::size_t> same;
  for (std::size_t other = 0; other < given.size(); ++other) {
    if (given[other] == given[rank]) same.push_back(other);
  }
  return same;
}

RankBinding plan_one(const Topology& machine, const std::vector<Cpus>& given, std::size_t rank, const AutoInt& threads,
                     const std::string& bind) {
  const std::vector<Cpus> cores = cores_of(machine, given[rank]);
  const std::vector<std::size_t> same = sharers(given, rank);
  const std::size_t num_cores = std::max<std::size_t>(1, cores.size());
  RankBinding plan;
  plan.pus = given[rank];
  plan.num_cores = static_cast<int>(num_cores);
  plan.num_threads =
      static_cast<int>(threads.value_or(static_cast<std::int64_t>(std::max<std::size_t>(1, num_cores / same.size()))));
  plan.is_applied = bind != "none";
  // More threads than cores: the kernel balances them better than any fixed choice.
  if (bind == "none" || cores.size() < same.size()) return plan;
  const auto position = static_cast<std::size_t>(std::find(same.begin(), same.end(), rank) - same.begin());
  const std::size_t first = position * cores.size() / same.size();
  const std::size_t last = (position + 1) * cores.size() / same.size();
  plan.pus = joined(cores, first, last);
  plan.num_cores = static_cast<int>(last - first);
  if (plan.num_threads > plan.num_cores) return plan;
  for (int thread = 0; thread < plan.num_threads; ++thread) {
    plan.threads.push_back(cores[first + static_cast<std::size_t>(thread)]);
  }
  return plan;
}

}  // namespace

std::string RankBinding::str() const {
  return fmt::format("{} {}, cpuset {}", num_threads, num_threads == 1 ? "thread" : "threads", cpuset_text(pus));
}

std::vector<RankBinding> plan_bindings(const Topology& machine, const std::vector<Cpus>& given, const AutoInt& threads,
                                       const std::string& bind) {
  std::vector<RankBinding> plans;
  plans.reserve(given.size());
  for (std::size_t rank = 0; rank < given.size(); ++rank)
    plans.push_back(plan_one(machine, given, rank, threads, bind));
  return plans;
}

std::vector<std::string> binding_warnings(const std::vector<BoundRank>& ranks) {
  // Sets of ranks that touch each other's processors, as a partition by smallest member.
  std::vector<std::size_t> set_of(ranks.size());
  std::iota(set_of.begin(), set_of.end(), std::size_t{0});
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (ranks[a].host != ranks[b].host || !overlap(ranks[a].binding.pus, ranks[b].binding.pus)) continue;
      const std::size_t from = std::max(set_of[a], set_of[b]), to = std::min(set_of[a], set_of[b]);
      std::replace(set_of.begin(), set_of.end(), from, to);
    }
  }
  std::vector<std::string> warnings;
  for (std::size_t set = 0; set < ranks.size(); ++set) {
    int num_threads = 0, num_cores = 0, num_ranks = 0;
    Cpus seen;
    std::string who;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (set_of[rank] != set) continue;
      const RankBinding& binding = ranks[rank].binding;
      num_threads += binding.num_threads;
      // A core counts once: exactly where ranks have equal or disjoint cpusets, from below where they overlap in part.
      if (!overlap(seen, binding.pus)) num_cores += binding.num_cores;
      seen.insert(seen.end(), binding.pus.begin(), binding.pus.end());
      who +=
          fmt::format("{}rank {} cpuset {}", who.empty() ? "" : ", ", ranks[rank].world_rank, cpuset_text(binding.pus));
      ++num_ranks;
    }
    if (num_threads <= num_cores) continue;
    const char* cores = num_cores == 1 ? "core" : "cores";
    const std::string what =
        num_ranks == 1 ? fmt::format("{} threads have {} {}", num_threads, num_cores, cores)
                       : fmt::format("{} ranks with {} threads share {} {}", num_ranks, num_threads, num_cores, cores);
    const bool withheld = num_cores < ranks[set].host_cores;
    const std::string hint = withheld                  ? "mpirun --bind-to none, or tessera launch"
                             : num_threads > num_ranks ? "a smaller device.threads, or fewer ranks"
                                                       : "fewer ranks";
    warnings.push_back(fmt::format("device: {} on {}: {}; hint: {}", what, ranks[set].host, who, hint));
  }
  return warnings;
}

std::string binding_summary(const std::vector<BoundRank>& ranks) {
  constexpr std::size_t kMaxListed = 8;
  const RankBinding& first = ranks.front().binding;
  if (ranks.size() == 1) return fmt::format("{} of {} cores", first.str(), ranks.front().host_cores);
  const auto [fewest, most] = std::minmax_element(
      ranks.begin(), ranks.end(),
      [](const BoundRank& a, const BoundRank& b) { return a.binding.num_threads < b.binding.num_threads; });
  const int low = fewest->binding.num_threads, high = most->binding.num_threads;
  std::string text = low == high ? fmt::format("{} {} per rank", low, low == 1 ? "thread" : "threads")
                                 : fmt::format("{} to {} threads per rank", low, high);
  text += ", cpusets:";
  for (std::size_t rank = 0; rank < std::min(ranks.size(), kMaxListed); ++rank) {
    text += fmt::format("{} rank {}: {}", rank == 0 ? "" : ",", ranks[rank].world_rank,
                        cpuset_text(ranks[rank].binding.pus));
  }
  if (ranks.size() > kMaxListed) text += ", …";
  return text;
}

std::string BoundRank::encode() const {
  return fmt::format("{} {} {} {} {} {}", world_rank, host, host_cores, cpuset_text(binding.pus), binding.num_cores,
                     binding.num_threads);
}

BoundRank BoundRank::decode(const std::string& text) {
  BoundRank rank;
  std::string pus;
  std::istringstream words(text);
  words >> rank.world_rank >> rank.host >> rank.host_cores >> pus >> rank.binding.num_cores >> rank.binding.num_threads;
  require(static_cast<bool>(words), "a rank describes its binding in six words");
  rank.binding.pus = parse_cpuset(pus);
  return rank;
}

void bind_thread(const RankBinding& binding, int index) {
  if (!binding.is_applied) return;
  if (index >= 0 && static_cast<std::size_t>(index) < binding.threads.size()) {
    bind_this_thread(binding.threads[static_cast<std::size_t>(index)]);
  } else {
    bind_this_thread(binding.pus);
  }
}

}  // namespace tessera
