// The report of `tessera trace --json`: the schema is in docs/trace.md.
#include <nlohmann/json.hpp>

#include "tools/trace_report.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

OrderedJson json_of(const CommunicationTimes& times) {
  return {{"calls", times.num_calls},
          {"bytes", times.bytes},
          {"union_seconds", seconds(times.union_ns)},
          {"overlapped_seconds", seconds(times.overlapped_ns)},
          {"exposed_seconds", seconds(times.exposed_ns())},
          {"waiting_seconds", seconds(times.waiting_ns())},
          {"moving_seconds", seconds(times.moving_ns)}};
}

OrderedJson json_of(const StepTimes& step) {
  OrderedJson kinds = OrderedJson::array();
  for (const CollectiveKind& kind : step.kinds) {
    OrderedJson entry{{"op", name_of(kind.op)}, {"phase", kind.phase}};
    entry.update(json_of(kind.times));
    kinds.push_back(std::move(entry));
  }
  return {{"step", step.step},
          {"step_seconds", seconds(step.step_ns)},
          {"compute_seconds", seconds(step.compute_ns)},
          {"wait_seconds", seconds(step.wait_ns)},
          {"data_seconds", seconds(step.data_ns)},
          {"host_seconds", seconds(step.host_ns)},
          {"idle_seconds", seconds(step.idle_ns)},
          {"communication", json_of(step.communication)},
          {"collectives", std::move(kinds)}};
}

OrderedJson json_of(const TraceReport::Rank& rank) {
  OrderedJson steps = OrderedJson::array();
  for (const StepTimes& step : rank.steps) steps.push_back(json_of(step));
  const TraceHeader& header = rank.header;
  return {{"rank", header.rank},
          {"host", header.host},
          {"dp", header.at.dp},
          {"pp", header.at.pp},
          {"tp", header.at.tp},
          {"clock_offset_seconds", seconds(header.clock.offset_ns)},
          {"clock_uncertainty_seconds", seconds(header.clock.uncertainty_ns)},
          {"dropped_steps", header.num_dropped_steps},
          {"steps", std::move(steps)}};
}

}  // namespace

std::string to_json(const TraceReport& report) {
  OrderedJson object = OrderedJson::object();
  if (!report.ranks.empty()) {
    const TraceHeader& header = report.ranks.front().header;
    object["run"] = header.run;
    object["world_size"] = header.world_size;
    object["steps"] = {header.steps.first, header.steps.last};
  }
  object["missing"] = report.missing;
  object["damaged"] = OrderedJson::array();
  for (const TraceReport::Damaged& file : report.damaged)
    object["damaged"].push_back({{"path", file.path}, {"reason", file.reason}});
  object["ranks"] = OrderedJson::array();
  for (const TraceReport::Rank& rank : report.ranks) object["ranks"].push_back(json_of(rank));
  // Names come from files: the replacement character stands for what is no UTF-8.
  return object.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace tessera
