// plan.json, and `tessera plan --json`.
#include <nlohmann/json.hpp>

#include "fsdp/ledger_timeline.h"
#include "fsdp/shard_layout.h"
#include "fsdp/traffic.h"
#include "runtime/train/numerics.h"
#include "runtime/train/plan.h"

namespace tessera {
namespace {

// Bytes. The timeline is the one that `tessera plan` draws.
nlohmann::ordered_json memory_json(const StepProgram& program, const Ledger& ledger) {
  nlohmann::ordered_json json = {
      {"peak", ledger.peak()}, {"peak_instruction", ledger.peak_instruction}, {"at", peak_place(program, ledger)}};
  for (std::size_t c = 0; c < ledger.peaks.size(); ++c) {
    json["categories"].push_back({{"name", name_of(static_cast<MemoryCategory>(c))},
                                  {"at_rest", ledger.at_rest[c]},
                                  {"at_peak", ledger.at_peak[c]},
                                  {"peak", ledger.peaks[c]}});
  }
  for (const TimelineRow& row : timeline_rows(program, ledger, kTimelineRows)) {
    json["timeline"].push_back({{"part", row.part}, {"peak", row.peak}, {"is_peak", row.is_peak}});
  }
  return json;
}

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
  json["predicted_bytes"] = plan.peak().bytes;
  json["staging_bytes"] = plan.staging_bytes;
  json["memory"]["step"] = memory_json(plan.program, plan.memory);
  if (plan.evaluation_memory)
    json["memory"]["evaluation"] = memory_json(plan.evaluation_program, *plan.evaluation_memory);
  if (plan.token_memory) json["memory"]["token"] = {{"peak", plan.token_memory->peak()}};
  json["step_flops"] = plan.step_flops();
  json["calls"] = {
      {"all_gather", plan.program.count(OpCode::kUnshard)},
      {"reduce_scatter", plan.program.count(OpCode::kReduce)},
      {"all_reduce", plan.program.count(OpCode::kReduceReplicas) + plan.program.count(OpCode::kAgreeTokens) +
                         plan.program.count(OpCode::kAgreeNorm)}};
  for (const Traffic& row : traffic_of(plan.program, CallSizes(plan.model, plan.units, plan.groups))) {
    json["traffic"].push_back({{"collective", row.collective},
                               {"group", row.group},
                               {"calls", row.calls},
                               {"sent", row.bytes.sent},
                               {"received", row.bytes.received}});
  }
  json["program"] = nlohmann::ordered_json::parse(plan.program.json());
  return json;
}

}  // namespace

std::string Plan::json() const {
  return plan_json(*this).dump(1) + "\n";
}

std::string Plan::json(const NumericsRecord& numerics) const {
  nlohmann::ordered_json json = plan_json(*this);
  json["numerics"] = nlohmann::ordered_json::parse(numerics.json());
  return json.dump(1) + "\n";
}

}  // namespace tessera
