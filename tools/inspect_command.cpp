#include "tools/inspect_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>

#include "parallel/collective_evidence.h"
#include "parallel/collective_members.h"
#include "parallel/collective_verdict.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "tools/inspect_json.h"

namespace tessera {
namespace {

struct InspectOptions {
  std::string run;
  bool json = false, calls = false;
  int rank = -1;  // all
  std::int64_t last = 20;
  double stall_seconds = JudgeOptions{}.stall_seconds;
};

std::string time_text(std::int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02}.{:06}", parts.tm_hour, parts.tm_min, parts.tm_sec,
                     unix_ns % 1'000'000'000 / 1000);
}

// One line of `--calls` (docs/collective-log.md).
std::string call_text(const RankLog& log, const LoggedCall& call, const GroupMembers& members) {
  const LoggedCommunicator& communicator = log.communicators[static_cast<std::size_t>(call.communicator)];
  CollectiveIdentity identity = call.identity;
  const bool by_group_rank = !members.to_world(communicator.group, identity);
  std::string text = fmt::format("{} rank {} call {} of {}/{}: {} | ", time_text(log.owner.unix_time(call.enqueued_ns)),
                                 log.owner.world_rank, call.identity.sequence, communicator.group, communicator.channel,
                                 describe(identity, by_group_rank));
  const auto micros = [](std::int64_t ns) { return fmt::format("{:.1f} us", static_cast<double>(ns) * 1e-3); };
  if (call.started_ns == 0) {
    text += "not started";
  } else {
    text += fmt::format("queued {}, ", micros(call.started_ns - call.enqueued_ns));
    text += call.finished_ns == 0 ? "not finished" : "ran " + micros(call.finished_ns - call.started_ns);
  }
  if (call.waited_ns > 0) text += fmt::format(", waited {}", micros(call.waited_ns));
  return text + fmt::format(" | {}\n", hex64(call.fingerprint));
}

void print_calls(const Evidence& evidence, const InspectOptions& options) {
  const GroupMembers members(evidence.logs);
  bool found = false;
  for (const RankLog& log : evidence.logs) {
    if (options.rank >= 0 && log.owner.world_rank != options.rank) continue;
    found = true;
    const auto shown = std::min<std::int64_t>(options.last, static_cast<std::int64_t>(log.calls.size()));
    for (auto call = log.calls.end() - shown; call != log.calls.end(); ++call)
      std::fputs(call_text(log, *call, members).c_str(), stdout);
  }
  for (const UnreadableLog& log : evidence.unreadable) {
    if (!found && log.world_rank == options.rank) throw DataError(log.reason);
  }
  if (!found)
    throw DataError(fmt::format("inspect {}: no collective log of rank {}", options.run, options.rank),
                    fmt::format("{} ranks have one", evidence.logs.size()));
}

int run_inspect(const InspectOptions& options) {
  if (!std::filesystem::is_directory(options.run))
    throw ConfigError(fmt::format("inspect {}: no such run directory", options.run), "the directory of --run-dir");
  const Evidence evidence = gather_evidence(options.run);
  if (options.calls) {
    print_calls(evidence, options);
    return 0;
  }
  const Verdict verdict = judge(evidence, {.stall_seconds = options.stall_seconds});
  std::fputs((options.json ? to_json(verdict) : verdict.text()).c_str(), stdout);
  return static_cast<int>(verdict.outcome == Outcome::kOk ? ExitCode::kDone : ExitCode::kCollective);
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "what went wrong in a run, from its collective logs; also while it runs");
  command->footer(
      "tessera inspect runs/a\ntessera inspect runs/a --json | jq .summary\n"
      "tessera inspect runs/a --calls --rank 3 --last 50");
  command->add_option("RUN", options->run, "run directory")->required();
  command->add_option("--stall-seconds", options->stall_seconds, "waits of a live job that count as a stall (30)")
      ->check(CLI::NonNegativeNumber)
      ->option_text("S");
  CLI::Option* json = command->add_flag("--json", options->json, "one JSON object (docs/collective-log.md)");
  CLI::Option* calls =
      command->add_flag("--calls", options->calls, "print the calls instead of a verdict")->excludes(json);
  command->add_option("--rank", options->rank, "with --calls: one world rank (all)")
      ->check(CLI::NonNegativeNumber)
      ->needs(calls)
      ->option_text("R");
  command->add_option("--last", options->last, "with --calls: the newest N of each rank (20)")
      ->check(CLI::NonNegativeNumber)
      ->needs(calls);
  command->callback([options, &exit_code] { exit_code = run_inspect(*options); });
}

}  // namespace tessera
