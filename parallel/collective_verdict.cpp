#include "parallel/collective_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "parallel/collective_members.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_text.h"

namespace tessera {
namespace {

constexpr double kNs = 1e-9;

bool is_message(const CollectiveIdentity& identity) {
  return identity.op == CollectiveOp::kSend || identity.op == CollectiveOp::kRecv;
}

// Equal but for their sequence numbers.
bool same_call(const CollectiveIdentity& a, const CollectiveIdentity& b) {
  return differing_fields(a, b).empty();
}

using Calls = std::vector<const LoggedCall*>;

// One rank's part of a communicator.
struct Member {
  const RankLog* log = nullptr;  // null: no log tells of this member
  const LoggedCommunicator* counters = nullptr;
  Calls calls;     // collectives, ascending sequence
  Calls messages;  // send and recv
  int rank() const { return log->owner.world_rank; }
  std::int64_t arrival(const LoggedCall& call) const { return log->owner.unix_time(call.started_ns); }
};

struct Channel {
  std::string group, channel;
  std::vector<Member> members;  // by group rank
  int num_present = 0;
};

const LoggedCall* find_call(const Calls& calls, std::uint64_t sequence) {
  const auto at =
      std::lower_bound(calls.begin(), calls.end(), sequence,
                       [](const LoggedCall* call, std::uint64_t value) { return call->identity.sequence < value; });
  return at != calls.end() && (*at)->identity.sequence == sequence ? *at : nullptr;
}

// (sender, receiver, sequence): one message between two members.
using MessageKey = std::tuple<int, int, std::uint64_t>;
MessageKey key_of(const CollectiveIdentity& identity) {
  return {identity.root, identity.peer, identity.sequence};
}

class Judge {
 public:
  Judge(const Evidence& evidence, const JudgeOptions& options)
      : evidence_(evidence), options_(options), members_(evidence.logs) {}

  Verdict run() {
    require(evidence_.logs.size() == evidence_.liveness.size(), "verdict: one liveness per log");
    require(options_.silence_seconds > 0, "verdict: a heartbeat has an age");
    for (const RankLog& log : evidence_.logs) verdict_.world_size = std::max(verdict_.world_size, log.owner.world_size);
    verdict_.unreadable = evidence_.unreadable;
    verdict_.ignored = evidence_.ignored;
    report_ranks();
    collect_channels();
    for (const auto& [key, channel] : channels_) {
      compare_histories(channel);
      compare_messages(channel);
      find_waits(channel);
      add_waiting_times(channel);
    }
    std::stable_sort(verdict_.divergences.begin(), verdict_.divergences.end(),
                     [](const Divergence& a, const Divergence& b) { return a.unix_ns < b.unix_ns; });
    std::stable_sort(verdict_.waits.begin(), verdict_.waits.end(), [](const Wait& a, const Wait& b) {
      return std::make_pair(!a.long_enough, -a.seconds) < std::make_pair(!b.long_enough, -b.seconds);
    });
    find_roots();
    decide();
    return std::move(verdict_);
  }

 private:
  RankReport& report_of(int rank) { return verdict_.ranks[static_cast<std::size_t>(rank)]; }
  RankState state_of(int rank) const { return verdict_.ranks[static_cast<std::size_t>(rank)].state; }

  RankState state_of(const RankLog& log, Liveness liveness, double silent_seconds) const {
    if (log.state == LogState::kEndedOk) return RankState::kEnded;
    if (log.state == LogState::kEndedError) {
      const bool asked = log.exit_code == static_cast<int>(ExitCode::kStopped) ||
                         log.exit_code == static_cast<int>(ExitCode::kStoppedUnsaved);
      if (asked) return RankState::kEnded;
      return follows(log) ? RankState::kFollowed : RankState::kFailed;
    }
    switch (liveness) {
      case Liveness::kDead: return RankState::kDied;
      case Liveness::kStopped: return RankState::kStopped;
      case Liveness::kRunning: return RankState::kRunning;
      case Liveness::kUnknown: break;
    }
    return silent_seconds > options_.silence_seconds ? RankState::kSilent : RankState::kRunning;
  }

  bool follows(const RankLog& log) const {
    return log.culprit >= 0 && log.culprit < verdict_.world_size && log.culprit != log.owner.world_rank;
  }

  // The last moment (Unix time) at which the rank is known to have lived.
  static std::int64_t last_sign(const RankLog& log) {
    std::int64_t last = std::max(log.owner.unix_ns, log.heartbeat_ns);
    for (const LoggedCall& call : log.calls)
      last = std::max(last, log.owner.unix_time(std::max({call.enqueued_ns, call.started_ns, call.finished_ns})));
    return last;
  }

  void report_ranks() {
    verdict_.ranks.resize(static_cast<std::size_t>(verdict_.world_size));
    for (int rank = 0; rank < verdict_.world_size; ++rank) report_of(rank).world_rank = rank;
    log_of_rank_.assign(verdict_.ranks.size(), nullptr);
    sign_of_rank_.assign(verdict_.ranks.size(), 0);
    for (std::size_t i = 0; i < evidence_.logs.size(); ++i) {
      const RankLog& log = evidence_.logs[i];
      const auto rank = static_cast<std::size_t>(log.owner.world_rank);
      RankReport& report = verdict_.ranks.at(rank);
      log_of_rank_[rank] = &log;
      sign_of_rank_[rank] = last_sign(log);
      report.silent_seconds = std::max(0.0, static_cast<double>(evidence_.now_ns - sign_of_rank_[rank]) * kNs);
      report.state = state_of(log, evidence_.liveness[i], report.silent_seconds);
      report.host = log.owner.host;
      report.message = log.message;
      report.pid = log.owner.pid;
      report.exit_code = log.exit_code;
      if (report.state == RankState::kFollowed) report.ended_with = log.culprit;
      report.step = log.step;
      report.num_calls = log.num_added;
      report.num_damaged = log.num_damaged;
      verdict_.several_hosts |= log.owner.host != evidence_.logs.front().owner.host;
      const LoggedCall* finished = nullptr;
      for (const LoggedCall& call : log.calls) {
        if (call.finished_ns != 0 && (finished == nullptr || call.finished_ns >= finished->finished_ns))
          finished = &call;
        if (call.finished_ns == 0 && call.started_ns != 0) report.pending.push_back(named(log, call));
      }
      if (finished != nullptr) report.last_finished = named(log, *finished);
    }
    verdict_.starting = is_starting();
    for (RankReport& report : verdict_.ranks) {
      if (report.state == RankState::kNoLog)
        report.message = verdict_.starting ? "no collective log yet" : "no collective log";
    }
    for (const UnreadableLog& log : evidence_.unreadable) {
      if (log.world_rank >= 0 && log.world_rank < verdict_.world_size) report_of(log.world_rank).message = log.reason;
    }
  }

  // Ranks create their logs one after the other, and other hosts see a new file later still. Where one has ended or died,
  // nobody is about to begin.
  bool is_starting() const {
    std::int64_t newest = 0;
    for (const RankLog& log : evidence_.logs) newest = std::max(newest, log.owner.unix_ns);
    bool missing = false;
    for (const RankReport& report : verdict_.ranks) {
      missing |= report.state == RankState::kNoLog;
      if (report.state == RankState::kDied || report.state == RankState::kEnded || report.state == RankState::kFailed ||
          report.state == RankState::kFollowed)
        return false;
    }
    return missing && static_cast<double>(evidence_.now_ns - newest) * kNs <= options_.silence_seconds;
  }
  bool is_starting(int rank) const { return verdict_.starting && state_of(rank) == RankState::kNoLog; }

  NamedCall named(const RankLog& log, const LoggedCall& call) const {
    const LoggedCommunicator& communicator = log.communicators[static_cast<std::size_t>(call.communicator)];
    return named(communicator.group, communicator.channel, call.identity);
  }
  NamedCall named(const std::string& group, const std::string& channel, const CollectiveIdentity& identity) const {
    NamedCall result{.group = group, .channel = channel, .identity = identity};
    result.by_group_rank = !members_.to_world(group, result.identity);
    return result;
  }

  void collect_channels() {
    for (const RankLog& log : evidence_.logs) {
      std::vector<Member*> members(log.communicators.size(), nullptr);
      for (std::size_t i = 0; i < members.size(); ++i) {
        const LoggedCommunicator& counters = log.communicators[i];
        // The reader's mark of a damaged entry; and a member that another rank says it is as well.
        if (counters.size < 1 || counters.size > verdict_.world_size) continue;
        Channel& channel = channels_[{counters.group, counters.channel, counters.size}];
        channel.group = counters.group;
        channel.channel = counters.channel;
        channel.members.resize(static_cast<std::size_t>(counters.size));
        Member& member = channel.members[static_cast<std::size_t>(counters.position)];
        if (member.log != nullptr) continue;
        ++channel.num_present;
        member.log = &log;
        member.counters = &counters;
        members[i] = &member;
      }
      for (const LoggedCall& call : log.calls) {
        Member* member = members[static_cast<std::size_t>(call.communicator)];
        if (member != nullptr) (is_message(call.identity) ? member->messages : member->calls).push_back(&call);
      }
    }
    const auto by_sequence = [](const LoggedCall* a, const LoggedCall* b) {
      return a->identity.sequence < b->identity.sequence;
    };
    for (auto& [key, channel] : channels_) {
      for (Member& member : channel.members) {
        if (!std::is_sorted(member.calls.begin(), member.calls.end(), by_sequence))
          std::stable_sort(member.calls.begin(), member.calls.end(), by_sequence);
        verdict_.num_compared += channel.members.size() > 1 ? member.calls.size() + member.messages.size() : 0;
      }
    }
  }

  // Where the histories of two members part: equal chains mean equal histories, so the newest common call is looked at
  // first, and in a run without a mismatch nothing else.
  struct Parting {
    std::uint64_t sequence = 0;
    bool before = false;
  };
  static std::optional<Parting> parting_of(const Calls& a, const Calls& b) {
    if (a.empty() || b.empty()) return std::nullopt;
    if (const LoggedCall* newest = find_call(a, b.back()->identity.sequence);
        newest != nullptr && newest->chain == b.back()->chain)
      return std::nullopt;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      const std::uint64_t left = a[i]->identity.sequence, right = b[j]->identity.sequence;
      if (left == right && a[i]->chain != b[j]->chain) return Parting{left, a[i]->fingerprint == b[j]->fingerprint};
      i += left <= right ? 1 : 0;
      j += right <= left ? 1 : 0;
    }
    return std::nullopt;
  }

  void compare_histories(const Channel& channel) {
    // The member that got furthest has the most calls in common with each other one.
    const Member* furthest = nullptr;
    for (const Member& member : channel.members) {
      if (!member.calls.empty() &&
          (furthest == nullptr || member.calls.back()->identity.sequence > furthest->calls.back()->identity.sequence))
        furthest = &member;
    }
    if (furthest == nullptr) return;
    std::optional<Parting> first;
    for (const Member& member : channel.members) {
      if (&member == furthest) continue;
      const auto parting = parting_of(furthest->calls, member.calls);
      if (parting && (!first || parting->sequence < first->sequence)) first = parting;
    }
    if (!first) return;
    Divergence divergence{
        .group = channel.group, .channel = channel.channel, .sequence = first->sequence, .before = first->before};
    // Sides by chain, not by fingerprint: where the difference is older, the calls themselves are equal.
    std::map<std::uint64_t, std::vector<const Member*>> sides;
    for (const Member& member : channel.members) {
      if (const LoggedCall* call = find_call(member.calls, first->sequence)) sides[call->chain].push_back(&member);
    }
    std::vector<std::vector<const Member*>> members;
    for (auto& [chain, side] : sides) members.push_back(std::move(side));
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
      return a.size() != b.size() ? a.size() > b.size() : a.front()->rank() < b.front()->rank();
    });
    for (const auto& side : members) {
      Divergence::Side entry;
      for (const Member* member : side) {
        const LoggedCall& call = *find_call(member->calls, first->sequence);
        entry.ranks.push_back(member->rank());
        entry.identity = call.identity;
        note_time(divergence, member->log->owner.unix_time(call.enqueued_ns));
      }
      std::sort(entry.ranks.begin(), entry.ranks.end());
      divergence.sides.push_back(std::move(entry));
    }
    if (members.size() == 2 && !divergence.before)
      divergence.hint = hint_of(*members[0].front(), *members[1].front(), divergence);
    add(std::move(divergence));
  }

  static void note_time(Divergence& divergence, std::int64_t unix_ns) {
    if (divergence.unix_ns == 0 || unix_ns < divergence.unix_ns) divergence.unix_ns = unix_ns;
  }

  // What the neighbouring calls of the two sides suggest; `other` is the smaller side.
  static std::string hint_of(const Member& most, const Member& other, const Divergence& divergence) {
    const std::uint64_t at = divergence.sequence;
    const LoggedCall* most_here = find_call(most.calls, at);
    const LoggedCall* most_next = find_call(most.calls, at + 1);
    const LoggedCall* other_here = find_call(other.calls, at);
    const LoggedCall* other_next = find_call(other.calls, at + 1);
    const bool ahead = most_next != nullptr && same_call(other_here->identity, most_next->identity);
    const bool behind = other_next != nullptr && same_call(other_next->identity, most_here->identity);
    const std::string who = text_of_ranks(divergence.sides[1].ranks);
    if (ahead && behind) return fmt::format("{} made calls {} and {} in the other order", who, at, at + 1);
    if (ahead && other_next != nullptr) return fmt::format("{} left out call {}", who, at);
    if (ahead)
      return fmt::format("{} made call {} where the others made call {}: left out, or in another order", who, at + 1,
                         at);
    if (behind) return fmt::format("{} made one call too many", who);
    return {};
  }

  void compare_messages(const Channel& channel) {
    struct Pair {
      const Member *sender = nullptr, *receiver = nullptr;
      const LoggedCall *send = nullptr, *recv = nullptr;
    };
    std::map<MessageKey, Pair> pairs;
    for (const Member& member : channel.members) {
      for (const LoggedCall* call : member.messages) {
        Pair& pair = pairs[key_of(call->identity)];
        const bool sends = call->identity.op == CollectiveOp::kSend;
        (sends ? pair.sender : pair.receiver) = &member;
        (sends ? pair.send : pair.recv) = call;
      }
    }
    // The smallest sequence of each pair of members: its later messages differ as a consequence.
    std::set<std::pair<int, int>> seen;
    for (const auto& [key, pair] : pairs) {
      if (pair.send == nullptr || pair.recv == nullptr || pair.send->fingerprint == pair.recv->fingerprint) continue;
      if (!seen.insert({std::get<0>(key), std::get<1>(key)}).second) continue;
      Divergence divergence{.group = channel.group, .channel = channel.channel, .sequence = std::get<2>(key)};
      divergence.sides.push_back({.ranks = {pair.sender->rank()}, .identity = pair.send->identity});
      divergence.sides.push_back({.ranks = {pair.receiver->rank()}, .identity = pair.recv->identity});
      note_time(divergence, pair.sender->log->owner.unix_time(pair.send->enqueued_ns));
      note_time(divergence, pair.receiver->log->owner.unix_time(pair.recv->enqueued_ns));
      add(std::move(divergence));
    }
  }

  void add(Divergence divergence) {
    // One way of naming members for all sides, so that they can be compared.
    std::vector<Divergence::Side> in_world = divergence.sides;
    for (Divergence::Side& side : in_world)
      divergence.by_group_rank |= !members_.to_world(divergence.group, side.identity);
    if (!divergence.by_group_rank) divergence.sides = std::move(in_world);
    for (std::size_t i = 0; i < divergence.sides.size(); ++i) {
      Divergence::Side& side = divergence.sides[i];
      side.fields =
          differing_fields(side.identity, divergence.sides[i == 0 ? 1 : 0].identity, divergence.by_group_rank);
    }
    verdict_.divergences.push_back(std::move(divergence));
  }

  // A rank that ended well waits for nobody, whatever its log still shows.
  bool may_wait(int rank) const { return state_of(rank) != RankState::kEnded; }

  void find_waits(const Channel& channel) {
    if (channel.members.size() < 2) return;
    // Calls of one communicator run in order: the first that is not finished is the only one a member can be in.
    std::map<std::uint64_t, Wait> waits;
    for (const Member& member : channel.members) {
      if (member.log == nullptr || !may_wait(member.rank())) continue;
      for (const LoggedCall* call : member.calls) {
        if (call->finished_ns != 0 || call->started_ns == 0) continue;
        add_waiting(waits[call->identity.sequence], channel, member, *call);
        break;
      }
    }
    for (auto& [sequence, wait] : waits) {
      for (std::size_t position = 0; position < channel.members.size(); ++position) {
        if (!has_started(channel.members[position], sequence)) add_absent(wait, channel, position);
      }
      add(std::move(wait));
    }
    find_message_waits(channel);
  }

  static bool has_started(const Member& member, std::uint64_t sequence) {
    if (member.log == nullptr) return false;
    if (member.counters->num_started > sequence) return true;
    const LoggedCall* call = find_call(member.calls, sequence);
    return call != nullptr && call->started_ns != 0;
  }

  void find_message_waits(const Channel& channel) {
    std::map<std::tuple<int, int, CollectiveOp>, std::uint64_t> num_started;  // by sender, receiver and side
    for (const Member& member : channel.members) {
      for (const LoggedCall* call : member.messages) {
        std::uint64_t& count = num_started[{call->identity.root, call->identity.peer, call->identity.op}];
        if (call->started_ns != 0) count = std::max(count, call->identity.sequence + 1);
      }
    }
    for (const Member& member : channel.members) {
      if (member.log == nullptr || !may_wait(member.rank())) continue;
      for (const LoggedCall* call : member.messages) {
        if (call->finished_ns != 0 || call->started_ns == 0) continue;
        const CollectiveIdentity& identity = call->identity;
        const bool sends = identity.op == CollectiveOp::kSend;
        const int other = sends ? identity.peer : identity.root;
        if (other < 0 || static_cast<std::size_t>(other) >= channel.members.size()) continue;
        Wait wait;
        add_waiting(wait, channel, member, *call);
        if (num_started[{identity.root, identity.peer, sends ? CollectiveOp::kRecv : CollectiveOp::kSend}] <=
            identity.sequence)
          add_absent(wait, channel, static_cast<std::size_t>(other));
        add(std::move(wait));
      }
    }
  }

  void add_waiting(Wait& wait, const Channel& channel, const Member& member, const LoggedCall& call) {
    wait.call = named(channel.group, channel.channel, call.identity);
    wait.waiting.push_back(member.rank());
    const std::int64_t since = member.arrival(call);
    if (wait.since_ns == 0 || since < wait.since_ns) wait.since_ns = since;
    const RankState state = state_of(member.rank());
    const bool lives = state == RankState::kRunning || state == RankState::kStopped || state == RankState::kSilent;
    const std::int64_t until = lives ? evidence_.now_ns : sign_of_rank_[static_cast<std::size_t>(member.rank())];
    wait.seconds = std::max(wait.seconds, static_cast<double>(until - since) * kNs);
    wait.long_enough |= state == RankState::kFailed || state == RankState::kFollowed;
  }

  void add_absent(Wait& wait, const Channel& channel, std::size_t position) {
    const Member& member = channel.members[position];
    const int rank =
        member.log != nullptr ? member.rank() : members_.world_rank(channel.group, static_cast<int>(position));
    if (rank < 0) {
      ++wait.num_unknown_absent;
    } else {
      wait.absent.push_back(rank);
    }
    // Who will not come need not be waited for until it is a stall.
    if (rank < 0) {
      wait.long_enough |= !verdict_.starting;
    } else {
      wait.long_enough |= state_of(rank) != RankState::kRunning && !is_starting(rank);
    }
  }

  void add(Wait wait) {
    std::sort(wait.waiting.begin(), wait.waiting.end());
    std::sort(wait.absent.begin(), wait.absent.end());
    wait.long_enough |= wait.seconds >= options_.stall_seconds;
    verdict_.waits.push_back(std::move(wait));
  }

  // The last member to arrive made all others wait.
  void add_waiting_times(const Channel& channel) {
    if (channel.members.size() < 2 || channel.num_present != static_cast<int>(channel.members.size())) return;
    std::vector<std::size_t> cursor(channel.members.size(), 0);
    std::vector<std::int64_t> arrivals(channel.members.size());
    for (const LoggedCall* first : channel.members.front().calls) {
      const std::uint64_t sequence = first->identity.sequence;
      bool complete = true;
      for (std::size_t i = 0; i < arrivals.size() && complete; ++i) {
        const Member& member = channel.members[i];
        std::size_t& at = cursor[i];
        while (at < member.calls.size() && member.calls[at]->identity.sequence < sequence) ++at;
        complete = at < member.calls.size() && member.calls[at]->identity.sequence == sequence &&
                   member.calls[at]->started_ns != 0;
        if (complete) arrivals[i] = member.arrival(*member.calls[at]);
      }
      if (!complete) continue;
      const auto last = std::max_element(arrivals.begin(), arrivals.end());
      RankReport& late = report_of(channel.members[static_cast<std::size_t>(last - arrivals.begin())].rank());
      ++late.num_last;
      ++verdict_.num_timed;
      for (std::size_t i = 0; i < arrivals.size(); ++i) {
        const double waited = static_cast<double>(*last - arrivals[i]) * kNs;
        report_of(channel.members[i].rank()).waiting_seconds += waited;
        late.blamed_seconds += waited;
        verdict_.waiting_seconds += waited;
      }
    }
  }

  // From long waits along "waits for" to the ranks that wait for nobody. Edges are calls: waiting rank → wait → absent ranks.
  void find_roots() {
    waits_of_rank_.assign(verdict_.ranks.size(), {});
    for (std::size_t i = 0; i < verdict_.waits.size(); ++i) {
      if (verdict_.waits[i].absent.empty()) continue;
      for (const int rank : verdict_.waits[i].waiting) waits_of_rank_[static_cast<std::size_t>(rank)].push_back(i);
    }
    std::vector<std::size_t> queue;
    std::vector<bool> seen(verdict_.waits.size(), false);
    const auto visit = [&](std::size_t wait) {
      if (!seen[wait]) queue.push_back(wait);
      seen[wait] = true;
    };
    for (std::size_t i = 0; i < verdict_.waits.size(); ++i) {
      if (verdict_.waits[i].long_enough) visit(i);
    }
    std::map<int, std::size_t> waited_for;  // root → ranks that wait for it directly
    for (std::size_t next = 0; next < queue.size(); ++next) {
      const Wait& wait = verdict_.waits[queue[next]];
      for (const int rank : wait.absent) {
        const std::vector<std::size_t>& further = waits_of_rank_[static_cast<std::size_t>(rank)];
        if (further.empty()) waited_for[rank] += wait.waiting.size();
        for (const std::size_t i : further) visit(i);
      }
    }
    for (const auto& [rank, count] : waited_for) roots_.push_back(rank);
    std::stable_sort(roots_.begin(), roots_.end(), [&](int a, int b) { return waited_for[a] > waited_for[b]; });
    // Without a root every path runs into a circle; follow one until a rank comes again.
    const auto start =
        std::find_if(queue.begin(), queue.end(), [&](std::size_t wait) { return !absent_of(wait).empty(); });
    if (!roots_.empty() || start == queue.end()) return;
    std::vector<int> path{absent_of(*start).front()};
    for (;;) {
      const int next = absent_of(waits_of_rank_[static_cast<std::size_t>(path.back())].front()).front();
      const auto again = std::find(path.begin(), path.end(), next);
      if (again != path.end()) {
        verdict_.cycle.assign(again, path.end());
        return;
      }
      path.push_back(next);
    }
  }
  const std::vector<int>& absent_of(std::size_t wait) const { return verdict_.waits[wait].absent; }

  template <typename Predicate>
  std::vector<int> ranks_where(Predicate&& predicate) const {
    std::vector<int> ranks;
    for (const RankReport& report : verdict_.ranks) {
      if (predicate(report)) ranks.push_back(report.world_rank);
    }
    return ranks;
  }
  template <typename Predicate>
  std::vector<int> roots_where(Predicate&& predicate) const {
    std::vector<int> ranks;
    for (const int rank : roots_) {
      if (predicate(verdict_.ranks[static_cast<std::size_t>(rank)])) ranks.push_back(rank);
    }
    return ranks;
  }

  void set(Outcome outcome, std::vector<int> culprits) {
    verdict_.outcome = outcome;
    verdict_.culprits = std::move(culprits);
  }

  // An old heartbeat says little: a silent rank that waits for another one did not begin it, nor does it where a rank
  // that is known to live is waited for. One in a circle of waits may have died there.
  bool silence_explains(const RankReport& report) const {
    const bool in_cycle =
        std::find(verdict_.cycle.begin(), verdict_.cycle.end(), report.world_rank) != verdict_.cycle.end();
    if (!in_cycle && !waits_of_rank_[static_cast<std::size_t>(report.world_rank)].empty()) return false;
    return std::none_of(roots_.begin(), roots_.end(), [&](int rank) {
      return state_of(rank) == RankState::kRunning || state_of(rank) == RankState::kStopped;
    });
  }

  // The causes in the order in which one explains the others.
  void decide() {
    const auto is_lost = [&](const RankReport& report) {
      return report.state == RankState::kDied || (report.state == RankState::kNoLog && !verdict_.starting) ||
             (report.state == RankState::kSilent && silence_explains(report));
    };
    const auto failed = [](const RankReport& report) {
      return report.state == RankState::kFailed || report.state == RankState::kFollowed;
    };
    const auto failed_alone = [&](const RankReport& report) {
      // A collective error is what a rank says when another one is the cause.
      return failed(report) && report.exit_code != static_cast<int>(ExitCode::kCollective);
    };
    const auto stopped = [](const RankReport& report) { return report.state == RankState::kStopped; };

    if (!verdict_.divergences.empty()) return set(Outcome::kMismatch, minority());
    if (auto ranks = ranks_where(failed_alone); !ranks.empty()) return set(Outcome::kFailed, origins(ranks));
    const auto died = ranks_where([](const RankReport& report) { return report.state == RankState::kDied; });
    if (died.size() == verdict_.ranks.size()) {
      // Killed together, or one first and its launcher took the others along: only a wait that lasted tells.
      const bool lasted = !verdict_.waits.empty() && verdict_.waits.front().seconds >= 1;
      return set(Outcome::kMissing, lasted ? roots_ : std::vector<int>{});
    }
    if (auto ranks = roots_where(is_lost); !ranks.empty()) return set(Outcome::kMissing, std::move(ranks));
    if (auto ranks = roots_where(failed); !ranks.empty()) return set(Outcome::kFailed, origins(ranks));
    if (auto ranks = ranks_where(is_lost); !ranks.empty()) return set(Outcome::kMissing, std::move(ranks));
    if (auto ranks = ranks_where(stopped); !ranks.empty()) return set(Outcome::kStalled, std::move(ranks));
    if (verdict_.starting) std::erase_if(roots_, [&](int rank) { return is_starting(rank); });
    if (is_stalled()) return set(Outcome::kStalled, roots_);
    if (auto ranks = ranks_where(failed); !ranks.empty()) return set(Outcome::kFailed, origins(ranks));
  }

  // A wait for a rank that is about to create its log is none.
  bool is_stalled() const {
    if (!roots_.empty() || !verdict_.cycle.empty()) return true;
    return std::any_of(verdict_.waits.begin(), verdict_.waits.end(), [&](const Wait& wait) {
      const bool for_starting = verdict_.starting && (!wait.absent.empty() || wait.num_unknown_absent > 0);
      return wait.long_enough && !for_starting;
    });
  }

  // The ranks whose errors these ranks ended with, in their order.
  std::vector<int> origins(const std::vector<int>& ranks) const {
    std::vector<int> result;
    for (const int rank : ranks) {
      const int other = verdict_.ranks[static_cast<std::size_t>(rank)].ended_with;
      const int origin = other >= 0 ? other : rank;
      if (std::find(result.begin(), result.end(), origin) == result.end()) result.push_back(origin);
    }
    return result;
  }

  // Who differs from most; nobody where the first side is no larger than the second.
  std::vector<int> minority() const {
    const std::vector<Divergence::Side>& sides = verdict_.divergences.front().sides;
    std::vector<int> ranks;
    if (sides[0].ranks.size() == sides[1].ranks.size()) return ranks;
    for (std::size_t i = 1; i < sides.size(); ++i)
      ranks.insert(ranks.end(), sides[i].ranks.begin(), sides[i].ranks.end());
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  const Evidence& evidence_;
  const JudgeOptions options_;
  const GroupMembers members_;
  Verdict verdict_;
  std::vector<const RankLog*> log_of_rank_;
  std::vector<std::int64_t> sign_of_rank_;
  std::map<std::tuple<std::string, std::string, int>, Channel> channels_;
  std::vector<std::vector<std::size_t>> waits_of_rank_;
  std::vector<int> roots_;
};

}  // namespace

Verdict judge(const Evidence& evidence, const JudgeOptions& options) {
  return Judge(evidence, options).run();
}

}  // namespace tessera
