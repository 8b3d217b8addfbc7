// Which processors the threads of each rank run on. Decided from plain facts by one pure function that every rank of a
// host evaluates alike; applied thread by thread.
//
// mpirun binds each rank to a core when there are one or two, to a package or NUMA node above, or not at all, as told.
// A binding of its own is respected; ranks that were given the same processors share the cores out among themselves.
#pragma once

#include <string>
#include <vector>

#include "launcher/topology.h"
#include "runtime/config/job_config.h"

namespace tessera {

struct RankBinding {
  std::vector<int> pus;  // where the rank's threads may run: compute and communication alike
  int num_cores = 1;     // of these PUs
  int num_threads = 1;   // compute threads
  std::vector<std::vector<int>>
      threads;             // per compute thread the PUs of its core; empty: no thread is bound beyond `pus`
  bool is_applied = true;  // false: threads stay where the system puts them, and all of the above is only reported

  // "2 threads, cpuset 0-1".
  std::string str() const;
  friend bool operator==(const RankBinding&, const RankBinding&) = default;
};

// The ranks of one host in local order. given: what each was allowed to run on when it started. threads: device.threads
// (auto = cores ÷ ranks, at least 1, where ranks share; else all cores given). bind: device.bind, auto or none (then
// nothing is changed, only reported).
std::vector<RankBinding> plan_bindings(const Topology& machine, const std::vector<std::vector<int>>& given,
                                       const AutoInt& threads, const std::string& bind);

// One rank's binding among those of the whole job.
struct BoundRank {
  int world_rank = 0;
  std::string host;
  int host_cores = 1;  // of the whole machine
  RankBinding binding;

  // As one word per field, to travel between ranks.
  std::string encode() const;
  static BoundRank decode(const std::string& text);
};

// Ranks whose threads outnumber the cores they have, alone or together with the ranks they share cores with: one
// warning per such set, with the cpuset of each rank, and a hint that says whether mpirun withheld cores or there are
// no more.
std::vector<std::string> binding_warnings(const std::vector<BoundRank>& ranks);

// For the run's header: "1 thread per rank, cpusets: rank 0: 0, rank 1: 1"; one rank: "2 threads, cpuset 0-1 of 2
// cores".
std::string binding_summary(const std::vector<BoundRank>& ranks);

// Binds the calling thread as compute thread `index`, or as a communication thread (index < 0), which may use every
// core of the rank: it must not be nailed to one that computes. Makes no call where the binding is not applied.
void bind_thread(const RankBinding& binding, int index);

}  // namespace tessera
