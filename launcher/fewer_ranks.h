// With how many ranks a job goes on where hosts are gone. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/hostfile.h"
#include "runtime/config/job_config.h"

namespace tessera {

// How many ranks each host holds of a job of `num_ranks`: ranks_per_node where that is told, else its slots, else an even part; more where the
// ranks outnumber all places. In the order of `hosts`, every one with its slots.
std::vector<Host> places_on_hosts(const std::vector<Host>& hosts, int num_ranks, std::optional<int> ranks_per_node);

struct FewerRanks {
  int num_ranks = 0;        // 0: no number fits
  std::vector<Host> hosts;  // that get ranks, with slots = ranks; filled in order
  std::string why_not;      // of num_ranks = 0: what is wrong with the largest number tried
};

// The largest number of ranks, at most `most`, that these places hold and that mesh, lanes, batch and shard groups of the job allow.
FewerRanks fit_ranks(const JobConfig& job, const std::vector<Host>& places, int most);

}  // namespace tessera
