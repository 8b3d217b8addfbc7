#include "tools/plan_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/config/scalar.h"
#include "runtime/train/memory_budget.h"
#include "tools/plan_report.h"

namespace tessera {
namespace {

struct PlanOptions {
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 1;
  std::optional<int> rank;
  std::optional<std::int64_t> ranks_per_host;
  std::string memory;
  bool simulate = false;
  double tflops = DeviceModel().flops_per_second / 1e12;
  double gbps = DeviceModel().bytes_per_second / 1e9;
  double call_us = DeviceModel().call_seconds * 1e6;
  double issue_us = DeviceModel().issue_seconds * 1e6;
  bool json = false;
};

// --memory, or device.memory_limit.
std::int64_t memory_limit(const PlanOptions& options, const JobConfig& config) {
  if (options.memory.empty()) return memory_limit_bytes(config.device);
  const auto bytes = config::parse_byte_size(options.memory);
  if (!bytes || *bytes <= 0)
    throw ConfigError(fmt::format("--memory: found '{}', expected bytes, as 80GiB", options.memory));
  return *bytes;
}

ExitCode print_plan(const PlanOptions& options) {
  const JobConfig config = load_config(options.config, options.overrides);
  const ResolvedBatch batch = resolve(config, options.ranks);
  const int rank = options.rank.value_or(0);
  if (rank >= options.ranks) throw ConfigError(fmt::format("--rank: {} is not one of {} ranks", rank, options.ranks));
  for (const double rate : {options.tflops, options.gbps, options.call_us, options.issue_us}) {
    if (!std::isfinite(rate))
      throw ConfigError(fmt::format("plan: found a rate of {}, expected a finite number", rate));
  }
  const MeshShape mesh = make_mesh(config.fsdp, batch, std::min(options.ranks_per_host.value_or(batch.dp), batch.dp));
  const int threads = static_cast<int>(config.device.threads.value_or(1));
  const Plan plan = make_plan(config, batch, mesh, rank, threads);
  PlanReport report{.plan = plan,
                    .training = prove_program(plan, plan.program),
                    .evaluation = prove_program(plan, plan.evaluation_program),
                    .faulty = prove_faulty_step(plan, config.chaos),
                    .memory_limit = memory_limit(options, config),
                    .with_program = options.rank.has_value()};
  if (report.memory_limit > 0 && plan.peak().bytes > report.memory_limit) {
    report.fix = cheapest_fix(config, plan, report.memory_limit, threads);
  }
  if (options.simulate) {
    report.simulated = simulate_cases(plan, {.flops_per_second = options.tflops * 1e12,
                                             .bytes_per_second = options.gbps * 1e9,
                                             .call_seconds = options.call_us * 1e-6,
                                             .issue_seconds = options.issue_us * 1e-6});
  }
  std::fputs((options.json ? plan_report_json(report) : plan_report_text(report)).c_str(), stdout);
  return is_proven(report) ? ExitCode::kDone : ExitCode::kCollective;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand(
      "plan", "print what each rank will do, on any machine: mesh, memory, collectives, step program");
  command->footer(
      "tessera plan configs/gpt2-124m.yaml --ranks 8 --memory 8GiB\ntessera plan configs/tiny.yaml --ranks 4 --rank 3\n"
      "tessera plan configs/gpt2-124m.yaml --ranks 8 --simulate --json");
  command->add_option("config", options->config, "job file")->required();
  command->add_option("--ranks", options->ranks, "world size to plan for")->check(CLI::PositiveNumber);
  command->add_option("--rank", options->rank, "print the step program of this logical rank")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--ranks-per-host", options->ranks_per_host, "neighbours of dp on a host (default: all are on one)")
      ->check(CLI::PositiveNumber);
  command->add_option("--memory", options->memory, "what a rank has: 80GiB (default: device.memory_limit)");
  CLI::Option* simulate =
      command->add_flag("--simulate", options->simulate, "the step on an imagined device, at these rates");
  command->add_option("--tflops", options->tflops, fmt::format("TFLOP/s of products ({:g})", options->tflops))
      ->check(CLI::PositiveNumber)
      ->needs(simulate);
  command->add_option("--gbps", options->gbps, fmt::format("GB/s of a rank, each way ({:g})", options->gbps))
      ->check(CLI::PositiveNumber)
      ->needs(simulate);
  command->add_option("--call-us", options->call_us, fmt::format("µs of an empty collective ({:g})", options->call_us))
      ->check(CLI::NonNegativeNumber)
      ->needs(simulate);
  command
      ->add_option("--issue-us", options->issue_us,
                   fmt::format("µs the host takes to issue an instruction ({:g})", options->issue_us))
      ->check(CLI::NonNegativeNumber)
      ->needs(simulate);
  command->add_option("--set", options->overrides, "key=value over the file; may be repeated");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] { exit_code = static_cast<int>(print_plan(*options)); });
}

}  // namespace tessera
