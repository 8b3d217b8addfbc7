// Evidence of a run made by hand: ranks on one host whose calls and times are what a test says.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "parallel/collective_evidence.h"

namespace tessera::test {

inline CollectiveIdentity named_call(CollectiveOp op, const std::string& what, std::int64_t step = 7) {
  CollectiveIdentity identity;
  identity.op = op;
  identity.num_elements = 1024;
  identity.dtype = DType::kFloat32;
  identity.step = step;
  set_name(identity.what, sizeof(identity.what), what);
  set_name(identity.phase, sizeof(identity.phase), "forward");
  return identity;
}

class SyntheticRun {
 public:
  static constexpr std::int64_t kStart = 1'700'000'000'000'000'000;  // Unix time: 2023-11-14 22:13:20 UTC

  // World rank = logical rank = dp coordinate; all on hostA, running, with communicators added by the first call.
  explicit SyntheticRun(int world_size) {
    evidence.now_ns = kStart;
    for (int rank = 0; rank < world_size; ++rank) {
      RankLog log;
      log.path = fmt::format("rank-{:05}.log", rank);
      log.owner = {.run_id = 1,
                   .world_rank = rank,
                   .world_size = world_size,
                   .logical_rank = rank,
                   .at = {.dp = rank},
                   .mesh = {.dp = world_size},
                   .host = "hostA",
                   .pid = 1000 + rank,
                   .unix_ns = kStart,
                   .monotonic_ns = 0};
      log.step = 7;
      evidence.logs.push_back(std::move(log));
      evidence.liveness.push_back(Liveness::kRunning);
    }
  }

  RankLog& log(int rank) { return evidence.logs.at(static_cast<std::size_t>(rank)); }
  Liveness& liveness(int rank) { return evidence.liveness.at(static_cast<std::size_t>(rank)); }
  // Seconds after the start at which the logs are read.
  void now(double seconds) { evidence.now_ns = kStart + ns(seconds); }

  // A call of `rank`; times in seconds after the start, negative: not yet. position: group rank, default the world rank.
  void call(int rank, const std::string& group, const std::string& channel, int size, CollectiveIdentity identity,
            double enqueued, double started = -1, double finished = -1, int position = -1) {
    RankLog& to = log(rank);
    const int index = communicator(to, group, channel, size, position < 0 ? rank : position);
    LoggedCommunicator& counters = to.communicators[static_cast<std::size_t>(index)];
    const bool message = identity.op == CollectiveOp::kSend || identity.op == CollectiveOp::kRecv;
    if (message) {
      identity.sequence = messages_[{rank, group, identity.root, identity.peer}]++;
    } else {
      identity.sequence = counters.num_enqueued++;
    }
    LoggedCall call{.index = to.num_added++, .communicator = index, .identity = identity};
    call.fingerprint = fingerprint_of(counters.group_hash, identity);
    if (!message) counters.chain = extend_chain(counters.chain, call.fingerprint);
    call.chain = counters.chain;
    call.enqueued_ns = ns(enqueued);
    if (started >= 0) call.started_ns = ns(started);
    if (finished >= 0) call.finished_ns = ns(finished);
    if (!message && started >= 0) ++counters.num_started;
    if (!message && finished >= 0) ++counters.num_finished;
    to.calls.push_back(call);
  }
  // A collective of the group dp:0 of all ranks on stream gather.
  void gather(int rank, const std::string& what, double enqueued, double started = -1, double finished = -1) {
    call(rank, "dp:0", "gather", static_cast<int>(evidence.logs.front().owner.world_size),
         named_call(CollectiveOp::kAllGather, what), enqueued, started, finished);
  }

  Evidence evidence;

 private:
  // Never 0, which stands for "not yet".
  static std::int64_t ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9) + 1; }

  static int communicator(RankLog& log, const std::string& group, const std::string& channel, int size, int position) {
    for (std::size_t i = 0; i < log.communicators.size(); ++i) {
      if (log.communicators[i].group == group && log.communicators[i].channel == channel) return static_cast<int>(i);
    }
    LoggedCommunicator added;
    added.group = group;
    added.channel = channel;
    added.size = size;
    added.position = position;
    added.group_hash = collective_group_hash(group, channel, size);
    log.communicators.push_back(added);
    return static_cast<int>(log.communicators.size()) - 1;
  }

  std::map<std::tuple<int, std::string, int, int>, std::uint64_t> messages_;
};

}  // namespace tessera::test
