#include "runtime/train/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "checkpoint/tensor_slice.h"
#include "checkpoint/writer.h"
#include "fsdp/ledger_timeline.h"
#include "fsdp/schedule.h"
#include "fsdp/shard_layout.h"
#include "fsdp/units.h"
#include "models/gpt.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/optimizer_groups.h"
#include "runtime/train/reporter.h"
#include "runtime/train/sampler.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

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

// Of the longest context that a sample reaches. The training's runner stays beside the one that makes tokens.
Ledger token_ledger(const JobConfig& config, const Plan& plan, int num_threads, std::int64_t held_bytes) {
  ModelSpec model = describe_gpt(sampler_model(config.model, kSampleTokens), 1, num_threads);
  model.constant_bytes += plan.model.constant_bytes;
  const StepProgram program = build_token_program(model, plan.units, token_schedule(plan.schedule));
  return make_ledger(program, model, plan.units, plan.groups, held_bytes);
}

// What a save copies on this rank, as the allocator hands it out. Of ranks that hold the same, the first one saves.
std::int64_t staging_bytes_of(const Plan& plan) {
  if (plan.groups.replica != 0) return 0;
  std::vector<SourceSlice> slices;
  for (const UnitSpec& unit : plan.units) {
    const ShardLayout layout = make_shard_layout(plan.model, unit, plan.groups.num_shards);
    for (const std::string_view suffix : kStateSuffixes) {
      std::ranges::move(describe_slices(plan.model, layout, plan.groups.shard, suffix), std::back_inserter(slices));
    }
  }
  constexpr std::int64_t block = 64;
  return (static_cast<std::int64_t>(staging_bytes(slices)) + block - 1) / block * block;
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
  ScheduleOptions one = plan.schedule;
  one.title = "program of a first loss " + where;
  one.num_micro_batches = one.micro_batches_per_lane = 1;
  plan.first_loss_program = build_evaluation_program(plan.model, plan.units, one);
  plan.staging_bytes = staging_bytes_of(plan);
  const std::int64_t held_bytes = config.checkpoint.every > 0 ? plan.staging_bytes : 0;
  plan.memory = make_ledger(plan.program, plan.model, plan.units, plan.groups, held_bytes);
  plan.first_loss_memory = make_ledger(plan.first_loss_program, plan.model, plan.units, plan.groups, held_bytes);
  if (config.run.evaluate_every > 0 && !config.data.validation.empty()) {
    plan.evaluation_memory = make_ledger(plan.evaluation_program, plan.model, plan.units, plan.groups, held_bytes);
  }
  if (config.run.sample_every > 0) plan.token_memory = token_ledger(config, plan, num_threads, held_bytes);
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

Plan::Peak Plan::peak() const {
  Peak highest{memory.peak(), peak_place(program, memory)};
  if (evaluation_memory && evaluation_memory->peak() > highest.bytes) {
    highest = {evaluation_memory->peak(), peak_place(evaluation_program, *evaluation_memory)};
  }
  if (first_loss_memory.peak() > highest.bytes) highest = {first_loss_memory.peak(), "the first loss of a certificate"};
  if (token_memory && token_memory->peak() > highest.bytes) highest = {token_memory->peak(), "a generated token"};
  const bool held = memory.at_rest[static_cast<std::size_t>(MemoryCategory::kCheckpoint)] > 0;
  if (const std::int64_t save = total_of(memory.at_rest) + (held ? 0 : staging_bytes); save > highest.bytes)
    highest = {save, "a save on request"};
  return highest;
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
  const Peak highest = peak();
  text += fmt::format("memory   {} predicted per rank (at {}), {} of it all the time\n", format_bytes(highest.bytes),
                      highest.place, format_bytes(total_of(memory.at_rest)));
  text += fmt::format("run      {}", context.run_directory);
  return text;
}

}  // namespace tessera
