#include "runtime/train/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "fsdp/schedule.h"
#include "fsdp/shard_layout.h"
#include "fsdp/units.h"
#include "models/gpt.h"
#include "runtime/train/numerics.h"
#include "runtime/train/optimizer_groups.h"
#include "runtime/train/reporter.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

nlohmann::ordered_json plan_json(const Plan& plan) {
  nlohmann::ordered_json json;
  json["mesh"] = {{"dp", plan.mesh.dp}, {"pp", plan.mesh.pp}, {"tp", plan.mesh.tp}};
  json["logical_rank"] = plan.logical_rank;
  json["batch"] = {{"lanes", plan.batch.lanes},
                   {"accumulation", plan.batch.accumulation},
                   {"lanes_per_rank", plan.batch.lanes_per_rank},
                   {"micro_batches_per_rank", plan.batch.micro_batches_per_rank}};
  for (const Group& group : canonical_groups(plan.mesh))
    json["groups"].push_back({{"name", group.name()}, {"members", group.members}});
  json["num_parameters"] = plan.model.num_parameters();
  for (const ParameterSpec& p : plan.model.parameters) {
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < p.shape.rank(); ++axis) shape.push_back(p.shape[axis]);
    json["parameters"].push_back({{"name", p.name}, {"shape", shape}, {"decay", p.decay}, {"tied", p.tied}});
  }
  for (const UnitSpec& unit : plan.units) {
    const ShardLayout layout = make_shard_layout(plan.model, unit, plan.groups.num_shards);
    json["units"].push_back({{"name", unit.name},
                             {"shard_size", layout.shard_size},
                             {"flat_size", layout.flat_size()},
                             {"parameters", unit.parameters}});
  }
  json["state_bytes"] = plan.state_bytes();
  json["predicted_bytes"] = plan.predicted_bytes();
  json["step_flops"] = plan.step_flops();
  json["calls"] = {
      {"all_gather", plan.program.count(OpCode::kUnshard)},
      {"reduce_scatter", plan.program.count(OpCode::kReduce)},
      {"all_reduce", plan.program.count(OpCode::kReduceReplicas) + plan.program.count(OpCode::kAgreeTokens) +
                         plan.program.count(OpCode::kAgreeNorm)}};
  json["program"] = nlohmann::ordered_json::parse(plan.program.json());
  return json;
}

// A program is written down whole, some six instructions for a segment of a micro-batch: a quarter of a million of those take 200 MB.
constexpr std::int64_t kMaxSegmentRuns = std::int64_t{1} << 18;

void check_program_size(const JobConfig& config, const ResolvedBatch& batch, const ModelSpec& model) {
  const auto segments = static_cast<std::int64_t>(model.segments.size());
  const std::int64_t most = kMaxSegmentRuns / segments;
  if (batch.micro_batches_per_rank <= most) return;
  throw ConfigError(
      fmt::format(
          "batch.global_batch_size: {} are {} micro-batches of {} on each of {} ranks, expected at most {} for a "
          "model of {} segments",
          config.batch.global_batch_size, batch.micro_batches_per_rank, config.batch.micro_batch_size, batch.dp, most,
          segments),
      "a larger batch.micro_batch_size, or more ranks");
}

}  // namespace

Plan make_plan(const JobConfig& config, const ResolvedBatch& batch, const MeshShape& mesh, int logical_rank,
               int num_threads) {
  Plan plan;
  plan.batch = batch;
  plan.mesh = mesh;
  plan.logical_rank = logical_rank;
  plan.model = describe_gpt(config.model, config.batch.micro_batch_size, num_threads);
  check_program_size(config, batch, plan.model);
  const std::vector<int> matched = match_groups(config.optimizer.groups, plan.model.parameters);
  for (std::size_t p = 0; p < matched.size(); ++p) {
    if (matched[p] >= 0)
      plan.model.parameters[p].frozen = config.optimizer.groups[static_cast<std::size_t>(matched[p])].frozen;
  }
  plan.units = make_units(plan.model, config.fsdp.wrap);
  plan.groups = shard_groups(config.fsdp, mesh, logical_rank);
  plan.schedule = schedule_options(config.fsdp, batch, plan.groups);
  const std::string where =
      fmt::format("of logical rank {}: {}; {} units; {} micro-batches in {} lanes", logical_rank, mesh.str(),
                  plan.units.size(), batch.micro_batches_per_rank, batch.lanes_per_rank);
  plan.schedule.title = "step program " + where;
  plan.program = build_training_program(plan.model, plan.units, plan.schedule);
  plan.schedule.title = "evaluation program " + where;
  plan.evaluation_program = build_evaluation_program(plan.model, plan.units, plan.schedule);
  return plan;
}

double Plan::step_flops() const {
  double forward = 0;
  for (const SegmentSpec& segment : model.segments) forward += static_cast<double>(segment.forward_flops);
  return 3.0 * forward * static_cast<double>(batch.micro_batches_per_rank);
}

std::int64_t Plan::state_bytes() const {
  std::int64_t elements = 0;
  for (const UnitSpec& unit : units) elements += make_shard_layout(model, unit, groups.num_shards).shard_size;
  return 16 * elements;
}

std::int64_t Plan::predicted_bytes() const {
  std::int64_t saved = 0, workspace = 0;
  for (const SegmentSpec& segment : model.segments) {
    saved += segment.saved_bytes;
    workspace = std::max({workspace, segment.forward_workspace_bytes, segment.backward_workspace_bytes});
  }
  std::int64_t shards = 0, flat = 0, full = 0, root = 0, largest = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const ShardLayout layout = make_shard_layout(model, units[u], groups.num_shards);
    const std::int64_t lookup =
        layout.tied_slot < 0 ? 0 : layout.slots[static_cast<std::size_t>(layout.tied_slot)].size;
    shards += 4 * layout.shard_size;
    flat += 4 * layout.flat_size();
    full += 4 * (layout.flat_size() + lookup);
    (u == 0 ? root : largest) = std::max(u == 0 ? root : largest, 4 * layout.flat_size());
  }
  // Full parameters at once: the root, the current unit and those in flight; all where none is resharded after forward.
  const std::int64_t lookups = full - flat;
  const std::int64_t gathered = groups.num_shards == 1 ? 0
                                : schedule.full_parameters == FullParameters::kSegment
                                    ? root + (1 + schedule.max_inflight_all_gathers) * largest
                                    : flat;
  // One micro-batch: a unit's full gradient goes as soon as it is reduced. More: they wait for the last, one per open node of the lane tree.
  const std::int64_t gradients =
      batch.micro_batches_per_rank == 1
          ? (groups.num_shards > 1 ? shards + root + largest + lookups : full)
          : full * (1 + std::bit_width(static_cast<std::uint64_t>(batch.lanes_per_rank)) - 1);
  return 3 * shards + gradients + gathered + saved + workspace;
}

std::int64_t Plan::least_bytes() const {
  const std::int64_t root = 4 * make_shard_layout(model, units.front(), groups.num_shards).flat_size();
  std::int64_t at_the_head = state_bytes() / 4 * 3 + root + (groups.num_shards > 1 ? root : 0);
  for (std::size_t s = 1; s + 1 < model.segments.size(); ++s) at_the_head += model.segments[s].saved_bytes;
  return std::max(state_bytes(), at_the_head);
}

std::string Plan::check_memory(std::int64_t limit) const {
  if (limit == 0 || predicted_bytes() <= limit) return {};
  const bool state_alone = state_bytes() > limit;
  const std::string figures = fmt::format(
      "a rank needs {} to {}, {} of it parameters, gradients and moments, and device.memory_limit is {}",
      format_bytes(least_bytes()), format_bytes(predicted_bytes()), format_bytes(state_bytes()), format_bytes(limit));
  const std::string hint = state_alone
                               ? "more ranks, a smaller model, or a larger device.memory_limit"
                               : "a smaller batch.micro_batch_size, more ranks, or a larger device.memory_limit";
  if (least_bytes() > limit) throw DeviceError("memory: " + figures, hint);
  return fmt::format("device.memory_limit may be too small: {}; hint: {}", figures, hint);
}

std::string Plan::json() const {
  return plan_json(*this).dump(1) + "\n";
}

std::string Plan::json(const NumericsRecord& numerics) const {
  nlohmann::ordered_json json = plan_json(*this);
  json["numerics"] = nlohmann::ordered_json::parse(numerics.json());
  return json.dump(1) + "\n";
}

std::string Plan::header(const TrainContext& context, const std::string& data_note, std::int64_t num_steps) const {
  const JobConfig& c = context.config;
  const std::string norm = c.model.norm == "rmsnorm" ? "Llama family" : "GPT-2 family";
  std::string text = fmt::format("tessera  {} | {}, {} layers × {} wide, {} heads, {} tokens of {} | {} parameters\n",
                                 c.run.name, norm, c.model.num_layers, c.model.hidden_size, c.model.num_heads,
                                 c.model.seq_len, c.model.vocab_size, format_count(model.num_parameters()));
  text += fmt::format("mesh     {} | {} units, {} | placement canonical\n", mesh.str(), units.size(), c.fsdp.strategy);
  if (!context.topology_summary.empty()) text += fmt::format("topology {}\n", context.topology_summary);
  text += fmt::format("batch    {} = dp {} × micro {} × accumulate {} | lanes {}", c.batch.global_batch_size, mesh.dp,
                      c.batch.micro_batch_size, batch.micro_batches_per_rank, batch.lanes);
  text += fmt::format(" (dp that fit: {})\n", fmt::join(dp_values_that_fit(c, batch.lanes), ", "));
  text += fmt::format("data     {} | {} steps\n", data_note, num_steps);
  text += fmt::format("device   {} | {}\n", context.device_summary, context.factory.backend());
  text += fmt::format("memory   {} predicted per rank, {} of it parameters, gradients and moments\n",
                      format_bytes(predicted_bytes()), format_bytes(state_bytes()));
  text += fmt::format("run      {}", context.run_directory);
  return text;
}

}  // namespace tessera
