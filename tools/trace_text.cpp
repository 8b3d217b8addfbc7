// The tables of `tessera trace`.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/trace_report.h"

namespace tessera {
namespace {

constexpr std::size_t kMostRows = 32;

// Sums over num_steps steps, printed as their mean.
struct Mean {
  StepTimes sum;
  std::int64_t num_steps = 0;

  void add(const StepTimes& step) {
    sum += step;
    ++num_steps;
  }
  double of(std::int64_t value) const {
    return num_steps > 0 ? static_cast<double>(value) / static_cast<double>(num_steps) : 0.0;
  }
  double milliseconds(std::int64_t ns) const { return of(ns) * 1e-6; }
};

std::string percent(const CommunicationTimes& times) {
  if (times.union_ns == 0) return "–";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(times.overlapped_ns) / static_cast<double>(times.union_ns));
}

std::string communication_cells(const Mean& mean, const CommunicationTimes& times) {
  return fmt::format("{:>13.3f} {:>10.3f} {:>6} {:>9.3f} {:>9.3f} {:>9.3f}", mean.milliseconds(times.union_ns),
                     mean.milliseconds(times.overlapped_ns), percent(times), mean.milliseconds(times.exposed_ns()),
                     mean.milliseconds(times.waiting_ns()), mean.milliseconds(times.moving_ns));
}
std::string communication_head() {
  return fmt::format("{:>13} {:>10} {:>6} {:>9} {:>9} {:>9}", "communication", "overlapped", "share", "exposed",
                     "for peers", "moving");
}

std::string time_row(const std::string& label, const Mean& mean) {
  const StepTimes& sum = mean.sum;
  return fmt::format("{:<10} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} |{}\n", label, mean.milliseconds(sum.step_ns),
                     mean.milliseconds(sum.compute_ns), mean.milliseconds(sum.wait_ns), mean.milliseconds(sum.idle_ns),
                     communication_cells(mean, sum.communication));
}

std::string time_table(const TraceReport& report, const TraceSelection& selection, const Mean& all) {
  std::string text =
      fmt::format("{:<10} {:>9} {:>9} {:>9} {:>9} |{}\n", "", "step", "compute", "wait", "idle", communication_head());
  std::vector<std::string> rows;
  for (const TraceReport::Rank& rank : report.ranks) {
    Mean of_rank;
    for (const StepTimes& step : rank.steps) {
      of_rank.add(step);
      Mean alone;
      alone.add(step);
      if (selection.rank >= 0) rows.push_back(time_row(fmt::format("step {}", step.step), alone));
    }
    if (selection.rank < 0) rows.push_back(time_row(fmt::format("rank {}", rank.header.rank), of_rank));
  }
  for (std::size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) text += rows[i];
  if (rows.size() > kMostRows) text += fmt::format("… {} more: --rank R, --json\n", rows.size() - kMostRows);
  if (rows.size() > 1) text += time_row("mean", all);
  return text;
}

std::string kind_table(const Mean& all) {
  std::string text = fmt::format("{:<14} {:<9} {:>6} {:>9} |{}\n", "", "phase", "calls", "MB", communication_head());
  for (const CollectiveKind& kind : all.sum.kinds) {
    text += fmt::format("{:<14} {:<9} {:>6} {:>9.3f} |{}\n", name_of(kind.op), kind.phase.empty() ? "–" : kind.phase,
                        all.of(kind.times.num_calls), all.of(kind.times.bytes) * 1e-6,
                        communication_cells(all, kind.times));
  }
  return text;
}

std::string steps_text(const TraceReport& report) {
  std::set<std::int64_t> steps;
  for (const TraceReport::Rank& rank : report.ranks) {
    for (const StepTimes& step : rank.steps) steps.insert(step.step);
  }
  if (steps.empty()) return "no step";
  return steps.size() == 1 ? fmt::format("step {}", *steps.begin())
                           : fmt::format("steps {}–{}", *steps.begin(), *steps.rbegin());
}

std::string ranks_text(const TraceReport& report, const TraceSelection& selection) {
  const int world_size = report.ranks.front().header.world_size;
  return selection.rank >= 0 ? fmt::format("rank {} of {}", selection.rank, world_size)
                             : fmt::format("{} of {} ranks", report.ranks.size(), world_size);
}

std::string clocks_text(const TraceReport& report) {
  std::int64_t most = 0;
  for (const TraceReport::Rank& rank : report.ranks) most = std::max(most, rank.header.clock.uncertainty_ns);
  return most == 0 ? "one clock for all ranks"
                   : fmt::format("clocks of ranks are within {:.1f} us of rank 0's", static_cast<double>(most) * 1e-3);
}

std::string gaps_text(const TraceReport& report) {
  std::string text;
  for (const TraceReport::Rank& rank : report.ranks) {
    if (rank.header.num_dropped_steps > 0)
      text += fmt::format("rank {}: {} steps found no room\n", rank.header.rank, rank.header.num_dropped_steps);
  }
  return text;
}

}  // namespace

std::string to_text(const TraceReport& report, const TraceSelection& selection) {
  if (report.ranks.empty()) return "";
  Mean all;
  for (const TraceReport::Rank& rank : report.ranks) {
    for (const StepTimes& step : rank.steps) all.add(step);
  }
  std::string text = fmt::format("{}, {}; milliseconds, mean per step; {}\n\n", steps_text(report),
                                 ranks_text(report, selection), clocks_text(report));
  text += time_table(report, selection, all) + "\n" + kind_table(all) + "\n" + gaps_text(report);
  text +=
      "communication: a collective runs; of it, overlapped: while the same rank computes, exposed: the rest; for "
      "peers: all that run wait for\n"
      "other ranks, moving: the rest. What a rank waited for lies on other ranks: these rows do not tell the path "
      "through all of them that\n"
      "sets the length of a step.\n";
  return text;
}

}  // namespace tessera
