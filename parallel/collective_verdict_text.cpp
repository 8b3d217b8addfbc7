#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collective_members.h"
#include "parallel/collective_verdict.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_text.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxRanksShown = 16;
constexpr std::size_t kMaxItemsShown = 8;

std::string count_of(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string place_of(const std::string& group, const std::string& channel, std::uint64_t sequence) {
  return fmt::format("call {} of {}/{}", sequence, group, channel);
}

std::string time_of_day(std::int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02} UTC", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

const RankReport& report_of(const Verdict& verdict, int rank) {
  return verdict.ranks.at(static_cast<std::size_t>(rank));
}

// "rank 1 (hostA, stopped)", "ranks 1, 3".
std::string who(const Verdict& verdict, const std::vector<int>& ranks) {
  if (ranks.size() != 1) return text_of_ranks(ranks);
  const RankReport& report = report_of(verdict, ranks.front());
  if (report.state == RankState::kNoLog) return text_of_ranks(ranks);
  return fmt::format("rank {} ({}, {})", report.world_rank, report.host, name_of(report.state));
}

// What a rank did last: "is in X", "last finished Y".
std::string last_of(const RankReport& report) {
  if (!report.pending.empty()) return "in " + report.pending.front().text();
  if (report.last_finished) return "last finished " + report.last_finished->text();
  return "no call finished";
}

// "step 7", "steps 6 to 7".
std::string steps_of(const Verdict& verdict) {
  std::int64_t low = 0, high = 0;
  bool any = false;
  for (const RankReport& report : verdict.ranks) {
    if (report.state == RankState::kNoLog) continue;
    low = any ? std::min(low, report.step) : report.step;
    high = any ? std::max(high, report.step) : report.step;
    any = true;
  }
  return low == high ? fmt::format("step {}", low) : fmt::format("steps {} to {}", low, high);
}

const char* waits(const Wait& wait) {
  return wait.waiting.size() == 1 ? "waits" : "wait";
}

// The wait that shows a culprit: the longest that lacks it.
const Wait* wait_for(const Verdict& verdict, int rank) {
  for (const Wait& wait : verdict.waits) {
    if (std::find(wait.absent.begin(), wait.absent.end(), rank) != wait.absent.end()) return &wait;
  }
  return nullptr;
}

std::string sides_text(const Divergence& divergence) {
  std::string text;
  for (std::size_t i = 0; i < divergence.sides.size(); ++i) {
    const Divergence::Side& side = divergence.sides[i];
    text += fmt::format("{}{}: {}", i == 0 ? "" : "; ", text_of_ranks(side.ranks), fmt::join(side.fields, ", "));
  }
  return text;
}

std::string mismatch_line(const Verdict& verdict) {
  const Divergence& first = verdict.divergences.front();
  const std::string place = place_of(first.group, first.channel, first.sequence);
  if (first.before) {
    std::string text = fmt::format("collective mismatch before {}, the oldest that the logs hold", place);
    for (const Divergence::Side& side : first.sides)
      text += fmt::format("{}{}", &side == first.sides.data() ? ": " : " against ", text_of_ranks(side.ranks));
    return text;
  }
  return fmt::format("collective mismatch in {}: {}", place, sides_text(first));
}

std::string failed_line(const Verdict& verdict) {
  const RankReport& first = report_of(verdict, verdict.culprits.front());
  std::vector<int> followers;
  for (const RankReport& report : verdict.ranks) {
    if (report.ended_with == first.world_rank) followers.push_back(report.world_rank);
  }
  // Where it did not live to write down its error, those that ended with it did.
  const RankReport& said =
      first.state == RankState::kFailed || followers.empty() ? first : report_of(verdict, followers.front());
  std::string text = first.state == RankState::kNoLog ? fmt::format("rank {} (without a log)", first.world_rank)
                                                      : fmt::format("rank {} ({})", first.world_rank, first.host);
  text += fmt::format(" ended with exit code {} in step {}", said.exit_code, said.step);
  if (!followers.empty()) text += fmt::format(", {} with it", text_of_ranks(followers));
  if (!said.message.empty()) text += ": " + said.message;
  if (verdict.culprits.size() > 1) text += fmt::format(" (failed as well: {})", verdict.culprits.size() - 1);
  return text;
}

std::string waited_for_text(const Verdict& verdict, int rank) {
  const Wait* wait = wait_for(verdict, rank);
  if (wait == nullptr) return {};
  return fmt::format("; {} waited {} for it in {}", text_of_ranks(wait->waiting), seconds_text(wait->seconds),
                     wait->call.text());
}

std::string missing_line(const Verdict& verdict) {
  const bool all_died = std::all_of(verdict.ranks.begin(), verdict.ranks.end(),
                                    [](const RankReport& report) { return report.state == RankState::kDied; });
  if (all_died) {
    std::string text = verdict.ranks.size() == 1
                           ? fmt::format("the only rank died in {}", steps_of(verdict))
                           : fmt::format("all {} ranks died in {}", verdict.ranks.size(), steps_of(verdict));
    if (verdict.culprits.empty()) return fmt::format("{}; rank 0: {}", text, last_of(verdict.ranks.front()));
    return fmt::format("{}, {} perhaps first{}", text, text_of_ranks(verdict.culprits),
                       waited_for_text(verdict, verdict.culprits.front()));
  }
  const RankReport& first = report_of(verdict, verdict.culprits.front());
  const std::string waited = waited_for_text(verdict, first.world_rank);
  if (first.state == RankState::kNoLog)
    return fmt::format("{}: {}{}", text_of_ranks(verdict.culprits), first.message, waited);
  std::string text = first.state == RankState::kDied
                         ? fmt::format("died in step {}", first.step)
                         : fmt::format("gave no sign of life for {}", seconds_text(first.silent_seconds));
  text = verdict.culprits.size() == 1
             ? fmt::format("rank {} ({}, pid {}) {}", first.world_rank, first.host, first.pid, text)
             : fmt::format("{} {}", text_of_ranks(verdict.culprits), text);
  return waited.empty() ? fmt::format("{}; {}", text, last_of(first)) : text + waited;
}

std::string stalled_line(const Verdict& verdict) {
  if (!verdict.cycle.empty()) {
    std::vector<int> ranks = verdict.cycle;
    std::sort(ranks.begin(), ranks.end());
    std::string text = fmt::format("{} wait for each other", text_of_ranks(ranks));
    for (std::size_t i = 0; i < verdict.cycle.size(); ++i) {
      const RankReport& report = report_of(verdict, verdict.cycle[i]);
      text += fmt::format("{}rank {} {}", i == 0 ? ": " : "; ", report.world_rank, last_of(report));
    }
    return text;
  }
  if (verdict.culprits.empty()) {
    const Wait& wait = verdict.waits.front();
    const std::string rest =
        wait.absent.empty() && wait.num_unknown_absent == 0 ? "and all members are in it" : "for members without a log";
    return fmt::format("{} {} {} in {}, {}", text_of_ranks(wait.waiting), waits(wait), seconds_text(wait.seconds),
                       wait.call.text(), rest);
  }
  const int first = verdict.culprits.front();
  const std::string name = who(verdict, verdict.culprits);
  const Wait* wait = wait_for(verdict, first);
  if (wait == nullptr) return fmt::format("{}: {}", name, last_of(report_of(verdict, first)));
  const std::string verb = verdict.culprits.size() == 1 ? "has" : "have";
  return fmt::format("{} {} not reached {}, where {} {} since {} ({}); {}", name, verb, wait->call.text(),
                     text_of_ranks(wait->waiting), waits(*wait), time_of_day(wait->since_ns),
                     seconds_text(wait->seconds), last_of(report_of(verdict, first)));
}

std::string ok_line(const Verdict& verdict) {
  const auto num_running =
      static_cast<std::size_t>(std::count_if(verdict.ranks.begin(), verdict.ranks.end(), [](const RankReport& report) {
        return report.state == RankState::kRunning;
      }));
  if (verdict.starting) {
    std::vector<int> missing;
    for (const RankReport& report : verdict.ranks) {
      if (report.state == RankState::kNoLog) missing.push_back(report.world_rank);
    }
    return fmt::format("starting: {} of {} running, {} without a log yet", num_running,
                       count_of(verdict.ranks.size(), "rank"), text_of_ranks(missing));
  }
  const std::string doing = num_running == 0 ? "ended"
                            : num_running == verdict.ranks.size()
                                ? "running"
                                : fmt::format("{} running, {} ended", num_running, verdict.ranks.size() - num_running);
  return fmt::format("{} {}, {}; {} compared", count_of(verdict.ranks.size(), "rank"), doing, steps_of(verdict),
                     count_of(verdict.num_compared, "call"));
}

// At most `limit` bytes, cut between characters.
std::string cut(std::string text, std::size_t limit) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() <= limit) return text;
  constexpr std::string_view mark = "…";
  std::size_t end = limit - mark.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end) + std::string(mark);
}

std::string divergence_text(const Divergence& divergence) {
  const std::string place = place_of(divergence.group, divergence.channel, divergence.sequence);
  std::string text = divergence.before
                         ? fmt::format("histories differ before {}, the oldest that the logs hold\n", place)
                         : fmt::format("first divergence: {}\n", place);
  for (const Divergence::Side& side : divergence.sides) {
    text += fmt::format("  {}: {}", text_of_ranks(side.ranks), describe(side.identity, divergence.by_group_rank));
    if (!side.fields.empty()) text += fmt::format(" [differs: {}]", fmt::join(side.fields, ", "));
    text += '\n';
  }
  if (!divergence.hint.empty()) text += fmt::format("  it seems that {}\n", divergence.hint);
  return text;
}

std::string wait_text(const Wait& wait) {
  std::string absent = wait.absent.empty() ? "" : text_of_ranks(wait.absent);
  if (wait.num_unknown_absent > 0)
    absent += fmt::format("{}{} without a log", absent.empty() ? "" : ", ",
                          count_of(static_cast<std::uint64_t>(wait.num_unknown_absent), "member"));
  return fmt::format("  {}: {} since {} ({}); {}\n", wait.call.text(), text_of_ranks(wait.waiting),
                     time_of_day(wait.since_ns), seconds_text(wait.seconds),
                     absent.empty() ? "all members are in it" : "not there: " + absent);
}

std::string rank_text(const RankReport& report) {
  std::string text = fmt::format("  rank {}", report.world_rank);
  if (report.state == RankState::kNoLog) return text + fmt::format(": {}\n", report.message);
  text += fmt::format(" ({}, pid {}): {}, step {}, {}", report.host, report.pid, name_of(report.state), report.step,
                      count_of(report.num_calls, "call"));
  if (report.state == RankState::kFollowed) text += fmt::format(", the error of rank {}", report.ended_with);
  if (report.state == RankState::kFailed || report.state == RankState::kFollowed)
    text += fmt::format(", exit code {}", report.exit_code);
  if (report.num_damaged > 0) text += fmt::format(", {} damaged", report.num_damaged);
  if (report.state == RankState::kSilent || report.state == RankState::kDied)
    text += fmt::format(", last sign of life {} ago", seconds_text(report.silent_seconds));
  text += '\n';
  if (!report.message.empty() && report.state != RankState::kFollowed)
    text += fmt::format("    said: {}\n", report.message);
  if (report.last_finished) text += fmt::format("    last finished: {}\n", report.last_finished->text());
  for (const NamedCall& call : report.pending) text += fmt::format("    in: {}\n", call.text());
  return text;
}

// Culprits first, then whoever is not simply running or done, then the others.
std::string ranks_text(const Verdict& verdict) {
  std::vector<int> weight;
  for (const RankReport& report : verdict.ranks)
    weight.push_back(report.state == RankState::kRunning || report.state == RankState::kEnded ? 2 : 1);
  for (const int rank : verdict.culprits) weight.at(static_cast<std::size_t>(rank)) = 0;
  std::vector<const RankReport*> order;
  for (const RankReport& report : verdict.ranks) order.push_back(&report);
  std::stable_sort(order.begin(), order.end(), [&](const RankReport* a, const RankReport* b) {
    return weight[static_cast<std::size_t>(a->world_rank)] < weight[static_cast<std::size_t>(b->world_rank)];
  });
  std::string text = "ranks\n";
  for (std::size_t i = 0; i < std::min(order.size(), kMaxRanksShown); ++i) text += rank_text(*order[i]);
  if (order.size() > kMaxRanksShown)
    text += fmt::format("  … and {} more (--json has all)\n", order.size() - kMaxRanksShown);
  return text;
}

std::string waiting_times_text(const Verdict& verdict) {
  if (verdict.num_timed == 0 || verdict.waiting_seconds <= 0) return {};
  std::vector<const RankReport*> order;
  for (const RankReport& report : verdict.ranks) {
    if (report.num_last > 0) order.push_back(&report);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const RankReport* a, const RankReport* b) { return a->blamed_seconds > b->blamed_seconds; });
  std::string text = fmt::format("waiting for peers: {} over {}{}\n", seconds_text(verdict.waiting_seconds),
                                 count_of(verdict.num_timed, "collective"),
                                 verdict.several_hosts ? " (clocks of hosts are compared as they are)" : "");
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 4); ++i) {
    const RankReport& report = *order[i];
    text += fmt::format("  rank {} ({}) came last in {} of them: {:.0f}% of the waiting\n", report.world_rank,
                        report.host, report.num_last, 100 * report.blamed_seconds / verdict.waiting_seconds);
  }
  return text;
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk: return "ok";
    case Outcome::kMismatch: return "mismatch";
    case Outcome::kFailed: return "failed";
    case Outcome::kMissing: return "missing";
    case Outcome::kStalled: return "stalled";
  }
  throw InternalError("verdict: unknown outcome");
}

std::string_view name_of(RankState state) {
  switch (state) {
    case RankState::kRunning: return "running";
    case RankState::kStopped: return "stopped";
    case RankState::kSilent: return "silent";
    case RankState::kDied: return "died";
    case RankState::kEnded: return "ended";
    case RankState::kFailed: return "failed";
    case RankState::kFollowed: return "ended with it";
    case RankState::kNoLog: return "no log";
  }
  throw InternalError("verdict: unknown rank state");
}

std::string NamedCall::text() const {
  return fmt::format("{} ({})", describe(identity, by_group_rank), place_of(group, channel, identity.sequence));
}

std::string Verdict::line() const {
  const auto compose = [&]() -> std::string {
    switch (outcome) {
      case Outcome::kOk: return ok_line(*this);
      case Outcome::kMismatch: return mismatch_line(*this);
      case Outcome::kFailed: return failed_line(*this);
      case Outcome::kMissing: return missing_line(*this);
      case Outcome::kStalled: return stalled_line(*this);
    }
    throw InternalError("verdict: unknown outcome");
  };
  return cut(compose(), kMaxVerdictLine);
}

std::string Verdict::text() const {
  std::string text = fmt::format("{}: {}\n", name_of(outcome), line());
  for (std::size_t i = 0; i < std::min(divergences.size(), kMaxItemsShown); ++i)
    text += "\n" + divergence_text(divergences[i]);
  if (divergences.size() > kMaxItemsShown)
    text += fmt::format("  … and {} more communicators\n", divergences.size() - kMaxItemsShown);
  if (!waits.empty()) {
    text += "\nwaiting\n";
    for (std::size_t i = 0; i < std::min(waits.size(), kMaxItemsShown); ++i) text += wait_text(waits[i]);
    if (waits.size() > kMaxItemsShown) text += fmt::format("  … and {} more\n", waits.size() - kMaxItemsShown);
  }
  text += "\n" + ranks_text(*this);
  if (const std::string times = waiting_times_text(*this); !times.empty()) text += "\n" + times;
  if (!ignored.empty())
    text += fmt::format("\nleft by an earlier start and not looked at: {}\n", count_of(ignored.size(), "log"));
  return text;
}

}  // namespace tessera
