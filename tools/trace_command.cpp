#include "tools/trace_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "tools/trace_report.h"

namespace tessera {
namespace {

struct TraceOptions {
  std::string run;
  bool json = false;
  TraceSelection selection;
};

// One line for all files that did not count.
[[noreturn]] void refuse(const std::string& run, const TraceReport& report) {
  std::string what;
  if (!report.missing.empty()) what = fmt::format("no file of rank {}", fmt::join(report.missing, ", "));
  for (const TraceReport::Damaged& file : report.damaged)
    what += fmt::format("{}{}", what.empty() ? "" : "; ", file.reason);
  throw DataError(fmt::format("trace {}: {}", run, what), "what is shown is of the other ranks");
}

void run_trace(const TraceOptions& options) {
  const TraceReport report = read_trace_report(options.run);
  const TraceReport shown = report.ranks.empty() ? report : select(report, options.selection);
  std::fputs((options.json ? to_json(shown) : to_text(shown, options.selection)).c_str(), stdout);
  if (!report.complete()) refuse(options.run, report);
}

}  // namespace

void add_trace_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command = app.add_subcommand(
      "trace", "where the time of traced steps went: compute, communication, overlap (trace.steps of the job)");
  command->footer(
      "mpirun --quiet -n 4 tessera train job.yaml --set 'trace.steps=[5,6]' --run-dir runs/a\n"
      "tessera trace runs/a\ntessera trace runs/a --rank 2\n"
      "tessera trace runs/a --json | jq '.ranks[0].steps[0].collectives'\n"
      "runs/a/trace/all.json.gz in ui.perfetto.dev: the timeline of all ranks");
  command->add_option("RUN", options->run, "run directory")->required();
  command->add_option("--step", options->selection.step, "one step (all)")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  command->add_option("--rank", options->selection.rank, "one world rank, a row per step (all, a row per rank)")
      ->check(CLI::NonNegativeNumber)
      ->option_text("R");
  command->add_flag("--json", options->json, "everything, as one JSON object (docs/trace.md)");
  command->callback([options, &exit_code] {
    run_trace(*options);
    exit_code = 0;
  });
}

}  // namespace tessera
