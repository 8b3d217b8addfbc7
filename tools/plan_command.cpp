#include "tools/plan_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/shard_layout.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/plan.h"
#include "runtime/train/reporter.h"

namespace tessera {
namespace {

struct PlanOptions {
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 1;
  int rank = 0;
  std::optional<std::int64_t> ranks_per_host;
  bool json = false;
};

std::string plan_text(const JobConfig& config, const Plan& plan) {
  std::string out = fmt::format("mesh    {} | lanes {} | {} micro-batches per rank\n", plan.mesh.str(),
                                plan.batch.lanes, plan.batch.micro_batches_per_rank);
  out += fmt::format("model   {} parameters, {} in products\n", format_count(plan.model.num_parameters()),
                     format_count(plan.model.num_parameters_in_products()));
  out +=
      fmt::format("step    {:.3g} TFLOP per rank; per rank {} all_gathers, {} reduce_scatters\n",
                  plan.step_flops() / 1e12, plan.program.count(OpCode::kUnshard), plan.program.count(OpCode::kReduce));
  out += "groups  ";
  for (const Group& group : canonical_groups(plan.mesh)) {
    if (group.members.size() > 1) out += fmt::format("{} ({} ranks)  ", group.name(), group.members.size());
  }
  out += "\nunits   ";
  for (const UnitSpec& unit : plan.units) {
    out += fmt::format("{} {} per shard  ", unit.name,
                       format_bytes(4 * make_shard_layout(plan.model, unit, plan.groups.num_shards).shard_size));
  }
  return out + "\n\n" + plan.program.str();
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "print what each rank will do: mesh, groups, units, memory, step program");
  command->footer(
      "tessera plan configs/tiny.yaml --ranks 4\ntessera plan configs/gpt2-124m.yaml --ranks 8 --rank 3 --json");
  command->add_option("config", options->config, "job file")->required();
  command->add_option("--ranks", options->ranks, "world size to plan for")->check(CLI::PositiveNumber);
  command->add_option("--rank", options->rank, "logical rank whose program is printed")->check(CLI::NonNegativeNumber);
  command->add_option("--ranks-per-host", options->ranks_per_host, "neighbours of dp on a host (default: all are on one)")
      ->check(CLI::PositiveNumber);
  command->add_option("--set", options->overrides, "key=value over the file; may be repeated");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] {
    const JobConfig config = load_config(options->config, options->overrides);
    const ResolvedBatch batch = resolve(config, options->ranks);
    if (options->rank >= options->ranks) {
      throw ConfigError(fmt::format("--rank: {} is not one of {} ranks", options->rank, options->ranks));
    }
    const MeshShape mesh = make_mesh(config.fsdp, batch, options->ranks_per_host.value_or(batch.dp));
    const Plan plan =
        make_plan(config, batch, mesh, options->rank, static_cast<int>(config.device.threads.value_or(1)));
    std::fputs((options->json ? plan.json() : plan_text(config, plan)).c_str(), stdout);
    exit_code = 0;
  });
}

}  // namespace tessera
