#include "tools/inspect_json.h"

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

void add_identity(Json& object, const CollectiveIdentity& identity) {
  object["sequence"] = identity.sequence;
  object["op"] = name_of(identity.op);
  object["reduce_op"] = name_of(identity.reduce);
  object["dtype"] = name_of(identity.dtype);
  object["count"] = identity.num_elements;
  object["root"] = identity.root;
  object["peer"] = identity.peer;
  object["what"] = identity.what_view();
  object["phase"] = identity.phase_view();
  object["step"] = identity.step;
  object["micro_batch"] = identity.micro_batch;
}

Json json_of(const NamedCall& call) {
  Json object{{"group", call.group}, {"channel", call.channel}};
  add_identity(object, call.identity);
  return object;
}

Json json_of(const Divergence& divergence) {
  Json object{{"group", divergence.group},
              {"channel", divergence.channel},
              {"sequence", divergence.sequence},
              {"before", divergence.before},
              {"time", static_cast<double>(divergence.unix_ns) * 1e-9},
              {"hint", divergence.hint},
              {"sides", Json::array()}};
  for (const Divergence::Side& side : divergence.sides) {
    Json entry{{"ranks", side.ranks}, {"differs", side.fields}, {"call", Json::object()}};
    add_identity(entry["call"], side.identity);
    object["sides"].push_back(std::move(entry));
  }
  return object;
}

Json json_of(const Wait& wait) {
  return {{"call", json_of(wait.call)},
          {"waiting", wait.waiting},
          {"absent", wait.absent},
          {"unknown_absent", wait.num_unknown_absent},
          {"since", static_cast<double>(wait.since_ns) * 1e-9},
          {"seconds", wait.seconds},
          {"stall", wait.long_enough}};
}

Json json_of(const RankReport& report, double all_waiting_seconds) {
  Json object{{"rank", report.world_rank},
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
              {"pending", Json::array()},
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
  Json object{{"verdict", name_of(verdict.outcome)},
              {"summary", verdict.line()},
              {"world_size", verdict.world_size},
              {"starting", verdict.starting},
              {"culprits", verdict.culprits},
              {"cycle", verdict.cycle},
              {"divergences", Json::array()},
              {"waits", Json::array()},
              {"ranks", Json::array()},
              {"unreadable", Json::array()},
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
