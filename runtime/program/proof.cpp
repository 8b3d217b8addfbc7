#include "runtime/program/proof.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "runtime/program/deadlock.h"
#include "runtime/program/matching.h"
#include "runtime/program/proof_job.h"

namespace tessera {
namespace {

// Calls match: those of a communicator are those of any member.
void count_calls(const ProofJob& job, ProofResult& result) {
  for (std::size_t group = 0; group < job.group_names.size(); ++group) {
    if (job.ranks.members[group].empty()) continue;
    const int member_class = job.ranks.class_of[job.ranks.members[group].front()];
    for (int stream = 0; stream < kNumStreams; ++stream) {
      const Channel channel = channel_of(job.group_axes[group], static_cast<StreamId>(stream));
      const std::size_t num_calls = job.programs[member_class].calls[channel].size();
      result.num_calls += static_cast<std::int64_t>(num_calls);
      if (num_calls > 0) ++result.num_communicators;
    }
  }
}

std::string count_of(std::int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string text_of(const ProofResult& result) {
  if (result.outcome == ProofOutcome::kMismatch) return fmt::format("{} ranks do not match", result.num_ranks);
  return fmt::format("{}; {} ({}, {}, {})", count_of(result.num_ranks, "rank matches", "ranks match"),
                     result.ok() ? "no deadlock" : "deadlock", count_of(result.num_classes, "class", "classes"),
                     count_of(result.num_communicators, "communicator", "communicators"),
                     count_of(result.num_calls, "call", "calls"));
}

}  // namespace

ProofResult prove(std::span<const ProgramClass> classes, std::span<const ProofGroup> groups) {
  const ProofJob job = index_job(classes, groups);
  ProofResult result{.num_ranks = job.ranks.num_ranks(), .num_classes = static_cast<int>(job.programs.size())};
  if (std::optional<std::string> mismatch = find_mismatch(job)) {
    result.outcome = ProofOutcome::kMismatch;
    result.counterexample.push_back(std::move(*mismatch));
  } else {
    count_calls(job, result);
    result.counterexample = find_deadlock(job);
    if (!result.counterexample.empty()) result.outcome = ProofOutcome::kDeadlock;
  }
  result.text = text_of(result);
  return result;
}

}  // namespace tessera
