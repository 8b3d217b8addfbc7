#include "tools/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "fsdp/ledger_timeline.h"
#include "fsdp/shard_layout.h"
#include "fsdp/traffic.h"
#include "runtime/train/reporter.h"

namespace tessera {
namespace {

// Groups of one axis are alike: a line says how many of what size there are, however many ranks.
std::string groups_text(const MeshShape& mesh) {
  std::map<Axis, std::vector<std::size_t>> sizes;
  for (const Group& group : canonical_groups(mesh)) sizes[group.axis].push_back(group.members.size());
  std::string out = "groups  ";
  const char* separator = "";
  for (const auto& [axis, all] : sizes) {
    if (all.front() < 2) continue;
    const std::string name = Group{axis, 0, {}}.name();
    const std::string axis_name = name.substr(0, name.find(':'));
    out += separator + (all.size() == 1 ? fmt::format("{} of {}", axis_name, all.front())
                                        : fmt::format("{} × {} of {}", all.size(), axis_name, all.front()));
    separator = ", ";
  }
  return out + (*separator == '\0' ? "none of two ranks or more\n" : "\n");
}

// Neighbours of one size stand together.
std::string units_text(const Plan& plan) {
  const auto shard_bytes = [&](std::size_t u) {
    return 4 * make_shard_layout(plan.model, plan.units[u], plan.groups.num_shards).shard_size;
  };
  std::string out = "units   ";
  for (std::size_t first = 0, end = 0; first < plan.units.size(); first = end) {
    const std::int64_t bytes = shard_bytes(first);
    for (end = first + 1; end < plan.units.size() && shard_bytes(end) == bytes;) ++end;
    const std::string& name = plan.units[first].name;
    out += fmt::format("{}{} {}", first == 0 ? "" : ", ",
                       end - first == 1 ? name : fmt::format("{} × {} …", end - first, name), format_bytes(bytes));
  }
  return out + " per shard\n";
}

std::string categories_text(const Ledger& ledger) {
  std::string out = fmt::format("{:<28}{:>14}{:>14}{:>14}\n", "memory of a rank", "at rest", "at the peak", "own peak");
  for (std::size_t c = 0; c < ledger.peaks.size(); ++c) {
    if (ledger.peaks[c] == 0) continue;
    out += fmt::format("  {:<26}{:>14}{:>14}{:>14}\n", name_of(static_cast<MemoryCategory>(c)),
                       format_bytes(ledger.at_rest[c]), format_bytes(ledger.at_peak[c]), format_bytes(ledger.peaks[c]));
  }
  return out + fmt::format("  {:<26}{:>14}{:>14}\n", "in all", format_bytes(total_of(ledger.at_rest)),
                           format_bytes(ledger.peak()));
}

// "80 GiB", as it was asked for.
std::string limit_text(std::int64_t bytes) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  return bytes % kGiB == 0 ? fmt::format("{} GiB", bytes / kGiB) : format_bytes(bytes);
}

std::string memory_text(const PlanReport& report) {
  const Plan& plan = report.plan;
  const Plan::Peak peak = plan.peak();
  std::string out = categories_text(plan.memory);
  out += fmt::format("  the peak of a step is reached at {}", peak_place(plan.program, plan.memory));
  if (plan.evaluation_memory)
    out += fmt::format("; an evaluation reaches {}", format_bytes(plan.evaluation_memory->peak()));
  if (plan.token_memory) out += fmt::format("; a generated token {}", format_bytes(plan.token_memory->peak()));
  out += '\n';
  if (report.memory_limit == 0) return out;
  const bool fits = peak.bytes <= report.memory_limit;
  out += fmt::format("fits {}: {}, {} at {}", limit_text(report.memory_limit), fits ? "yes" : "no",
                     format_bytes(peak.bytes), peak.place);
  return out + (fits ? "\n" : fmt::format("; hint: {}\n", report.fix));
}

// Columns of UTF-8 text: bytes that do not continue a character.
std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string timeline_text(const Plan& plan) {
  constexpr std::size_t kBar = 32;
  const std::vector<TimelineRow> rows = timeline_rows(plan.program, plan.memory, kTimelineRows);
  std::size_t width = 0;
  for (const TimelineRow& row : rows) width = std::max(width, columns(row.part));
  std::string out = "timeline of a step\n";
  for (const TimelineRow& row : rows) {
    const auto cells = static_cast<std::size_t>(static_cast<double>(kBar) * static_cast<double>(row.peak) /
                                                static_cast<double>(std::max<std::int64_t>(1, plan.memory.peak())));
    out +=
        "  " + row.part + std::string(width - columns(row.part), ' ') + fmt::format("{:>12} ", format_bytes(row.peak));
    for (std::size_t cell = 0; cell < cells; ++cell) out += "█";
    out += row.is_peak ? " peak\n" : "\n";
  }
  return out;
}

std::string traffic_text(const Plan& plan) {
  std::string out =
      fmt::format("{:<32}{:>8}{:>12}{:>12}\n", "collectives of a step, per rank", "calls", "sent", "received");
  for (const Traffic& row : traffic_of(plan.program, CallSizes(plan.model, plan.units, plan.groups))) {
    const bool words = row.bytes == CallBytes{} && row.group == "world";
    out +=
        fmt::format("  {:<16}{:<14}{:>8}{:>12}{:>12}\n", row.collective, row.group, row.calls,
                    words ? "words" : format_bytes(row.bytes.sent), words ? "words" : format_bytes(row.bytes.received));
  }
  return out + "  n ranks: (n-1) · shard for all_gather and reduce_scatter, 2(n-1)/n · data for all_reduce\n";
}

std::string simulated_text(const std::vector<SimulatedCase>& cases) {
  const DeviceModel& d = cases.front().device;
  std::string out =
      fmt::format("simulated at {:g} TFLOP/s, {:g} GB/s each way, {:g} µs per call, {:g} µs to issue\n",
                  d.flops_per_second / 1e12, d.bytes_per_second / 1e9, d.call_seconds * 1e6, d.issue_seconds * 1e6);
  out += fmt::format("  {:<30}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>12}\n", "", "step", "compute", "comm.", "overlap",
                     "exposed", "allocated", "reserved");
  for (const SimulatedCase& c : cases) {
    const auto ms = [](double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); };
    const Simulation& r = c.result;
    out += fmt::format("  {:<30}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>12}\n", c.name, ms(r.step_seconds),
                       ms(r.compute_seconds), ms(r.communication_seconds), ms(r.overlapped_seconds),
                       ms(r.exposed_seconds()), format_bytes(r.allocated_peak), format_bytes(r.reserved_peak));
  }
  return out;
}

std::string refutation_text(const std::string& title, const ProofResult& proof) {
  std::string out = fmt::format("{}: {}\n", title, proof.text);
  for (const std::string& line : proof.counterexample) out += fmt::format("          {}\n", line);
  return out;
}

std::string proof_text(const PlanReport& report) {
  std::string out = report.training.ok() ? fmt::format("proof   {}\n", report.training.text)
                                         : refutation_text("proof   training", report.training);
  if (!report.evaluation.ok()) out += refutation_text("proof   evaluation", report.evaluation);
  if (report.faulty.step > 0) {
    out += refutation_text(fmt::format("chaos   step {}", report.faulty.step), report.faulty.proof);
  }
  return out;
}

nlohmann::ordered_json proof_json(const ProofResult& proof) {
  return {{"ok", proof.ok()},
          {"text", proof.text},
          {"counterexample", proof.counterexample},
          {"num_ranks", proof.num_ranks},
          {"num_classes", proof.num_classes},
          {"num_communicators", proof.num_communicators},
          {"num_calls", proof.num_calls}};
}

nlohmann::ordered_json simulated_json(const SimulatedCase& c) {
  const Simulation& r = c.result;
  return {{"name", c.name},
          {"flops_per_second", c.device.flops_per_second},
          {"bytes_per_second", c.device.bytes_per_second},
          {"call_seconds", c.device.call_seconds},
          {"issue_seconds", c.device.issue_seconds},
          {"host_runs_ahead", c.device.host_runs_ahead},
          {"rate_limit", c.device.rate_limit},
          {"step_seconds", r.step_seconds},
          {"compute_seconds", r.compute_seconds},
          {"gather_seconds", r.gather_seconds},
          {"reduce_seconds", r.reduce_seconds},
          {"communication_seconds", r.communication_seconds},
          {"overlapped_seconds", r.overlapped_seconds},
          {"exposed_seconds", r.exposed_seconds()},
          {"allocated_peak", r.allocated_peak},
          {"reserved_peak", r.reserved_peak}};
}

}  // namespace

std::vector<SimulatedCase> simulate_cases(const Plan& plan, const DeviceModel& rates) {
  const int limit = plan.schedule.max_inflight_all_gathers;
  DeviceModel limited = rates, unlimited = rates, inline_host = rates;
  limited.rate_limit = limit;
  inline_host.host_runs_ahead = false;
  std::vector<SimulatedCase> cases = {{fmt::format("host runs ahead, limit {}", limit), limited, {}},
                                      {"host runs ahead, no limit", unlimited, {}},
                                      {"host waits for each product", inline_host, {}}};
  for (SimulatedCase& c : cases) c.result = simulate(plan.program, plan.model, plan.units, plan.groups, c.device);
  return cases;
}

bool is_proven(const PlanReport& report) {
  return report.training.ok() && report.evaluation.ok() && (report.faulty.step == 0 || report.faulty.proof.ok());
}

std::string plan_report_text(const PlanReport& report) {
  const Plan& plan = report.plan;
  std::string out =
      fmt::format("mesh    {} | lanes {} | {} micro-batch{} per rank\n", plan.mesh.str(), plan.batch.lanes,
                  plan.batch.micro_batches_per_rank, plan.batch.micro_batches_per_rank == 1 ? "" : "es");
  out += groups_text(plan.mesh);
  out += proof_text(report);
  out += fmt::format("model   {} parameters, {} in products\n", format_count(plan.model.num_parameters()),
                     format_count(plan.model.num_parameters_in_products()));
  out += units_text(plan);
  out +=
      fmt::format("step    {:.3g} TFLOP per rank; per rank {} all_gathers, {} reduce_scatters\n\n",
                  plan.step_flops() / 1e12, plan.program.count(OpCode::kUnshard), plan.program.count(OpCode::kReduce));
  out += memory_text(report) + '\n' + timeline_text(plan) + '\n' + traffic_text(plan);
  if (!report.simulated.empty()) out += '\n' + simulated_text(report.simulated);
  if (report.with_program) out += '\n' + plan.program.str();
  return out;
}

std::string plan_report_json(const PlanReport& report) {
  auto json = nlohmann::ordered_json::parse(report.plan.json());
  json["proof"] = {{"training", proof_json(report.training)}, {"evaluation", proof_json(report.evaluation)}};
  if (report.faulty.step > 0) {
    json["proof"]["chaos"] = proof_json(report.faulty.proof);
    json["proof"]["chaos"]["step"] = report.faulty.step;
  }
  if (report.memory_limit > 0) {
    const bool fits = report.plan.peak().bytes <= report.memory_limit;
    json["limit"] = {{"bytes", report.memory_limit}, {"fits", fits}};
    if (!fits) json["limit"]["fix"] = report.fix;
  }
  for (const SimulatedCase& c : report.simulated) json["simulated"].push_back(simulated_json(c));
  return json.dump(1) + "\n";
}

}  // namespace tessera
