#include "tools/inspect_json.h"

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

void add_identity(OrderedJson& object, const CollectiveIdentity& identity, bool by_group_rank) {
  object["sequence"] = identity.sequence;
  object["op"] = name_of(identity.op);
  object["reduce_op"] = name_of(identity.reduce);
  object["dtype"] = name_of(identity.dtype);
  object["count"] = identity.num_elements;
  object["root"] = identity.root;
  object["peer"] = identity.peer;
  object["by_group_rank"] = by_group_rank;
  object["what"] = identity.what_view();
  object["phase"] = identity.phase_view();
  object["step"] = identity.step;
  object["micro_batch"] = identity.micro_batch;
}

OrderedJson json_of(const NamedCall& call) {
  OrderedJson object{{"group", call.group}, {"channel", call.channel}};
  add_identity(object, call.identity, call.by_group_rank);
  return object;
}

OrderedJson json_of(const Divergence& divergence) {
  OrderedJson object{{"group", divergence.group},
                     {"channel", divergence.channel},
                     {"sequence", divergence.sequence},
                     {"before", divergence.before},
                     {"time", static_cast<double>(divergence.unix_ns) * 1e-9},
                     {"hint", divergence.hint},
                     {"sides", OrderedJson::array()}};
  for (const Divergence::Side& side : divergence.sides) {
    OrderedJson entry{{"ranks", side.ranks}, {"differs", side.fields}, {"call", OrderedJson::object()}};
    add_identity(entry["call"], side.identity, divergence.by_group_rank);
    object["sides"].push_back(std::move(entry));
  }
  return object;
}

OrderedJson json_of(const Wait& wait) {
  return {{"call", json_of(wait.call)},
          {"waiting", wait.waiting},
          {"absent", wait.absent},
          {"unknown_absent", wait.num_unknown_absent},
          {"since", static_cast<double>(wait.since_ns) * 1e-9},
          {"seconds", wait.seconds},
          {"stall", wait.long_enough}};
}

OrderedJson json_of(const RankReport& report, double all_waiting_seconds) {
  OrderedJson object{{"rank", report.world_rank},
                     {"state", name_of(report.state)},
                     {"ended_with", report.ended_with},
                     {"host", report.host},
                     {"pid", report.pid},
                     {"exit_code", report.exit_code},
                     {"message", report.message},
                     {"step", report.step},
                     {"calls", report.num_calls},
                     {"damaged_calls", report.num_damaged},
                     {"silent_seconds", report.silent_seconds},
                     {"last_finished", nullptr},
                     {"pending", OrderedJson::array()},
                     {"waiting_seconds", report.waiting_seconds},
                     {"came_last", report.num_last},
                     {"blamed_seconds", report.blamed_seconds},
                     {"blamed_share", all_waiting_seconds > 0 ? report.blamed_seconds / all_waiting_seconds : 0.0}};
  if (report.last_finished) object["last_finished"] = json_of(*report.last_finished);
  for (const NamedCall& call : report.pending) object["pending"].push_back(json_of(call));
  return object;
}

}  // namespace

std::string to_json(const Verdict& verdict) {
  OrderedJson object{{"verdict", name_of(verdict.outcome)},
                     {"summary", verdict.line()},
                     {"world_size", verdict.world_size},
                     {"starting", verdict.starting},
                     {"culprits", verdict.culprits},
                     {"cycle", verdict.cycle},
                     {"divergences", OrderedJson::array()},
                     {"waits", OrderedJson::array()},
                     {"ranks", OrderedJson::array()},
                     {"unreadable", OrderedJson::array()},
                     {"ignored", verdict.ignored},
                     {"compared_calls", verdict.num_compared},
                     {"timed_collectives", verdict.num_timed},
                     {"waiting_seconds", verdict.waiting_seconds},
                     {"several_hosts", verdict.several_hosts}};
  for (const Divergence& divergence : verdict.divergences) object["divergences"].push_back(json_of(divergence));
  for (const Wait& wait : verdict.waits) object["waits"].push_back(json_of(wait));
  for (const RankReport& report : verdict.ranks) object["ranks"].push_back(json_of(report, verdict.waiting_seconds));
  for (const UnreadableLog& log : verdict.unreadable)
    object["unreadable"].push_back({{"rank", log.world_rank}, {"path", log.path}, {"reason", log.reason}});
  // Names come from files: the replacement character stands for what is no UTF-8.
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
