#include "fsdp/traffic.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::int64_t kElementBytes = 4;  // fp32

// Elements of the lookup segment that belong to one shard, and of all of it.
std::int64_t lookup_part(const ShardLayout& layout, int shard) {
  return static_cast<std::int64_t>(layout.lookup_counts()[static_cast<std::size_t>(shard)]);
}

std::int64_t lookup_size(const ShardLayout& layout) {
  return layout.tied_slot < 0 ? 0 : layout.slots[static_cast<std::size_t>(layout.tied_slot)].size;
}

}  // namespace

CallSizes::CallSizes(const ModelSpec& model, const std::vector<UnitSpec>& units, const ShardGroups& groups)
    : groups_(groups) {
  for (const UnitSpec& unit : units) layouts_.push_back(make_shard_layout(model, unit, groups.num_shards));
}

CallBytes CallSizes::of(const Instruction& i) const {
  if (i.unit < 0) return {};
  const ShardLayout& layout = layouts_[static_cast<std::size_t>(i.unit)];
  const std::int64_t others = groups_.num_shards - 1;
  if (i.op == OpCode::kUnshard) {
    const std::int64_t bytes = others * layout.shard_size * kElementBytes;
    return {bytes, bytes};
  }
  const std::int64_t own_lookup = lookup_part(layout, groups_.shard);
  if (i.op == OpCode::kReduce) {
    return {(others * layout.shard_size + lookup_size(layout) - own_lookup) * kElementBytes,
            others * (layout.shard_size + own_lookup) * kElementBytes};
  }
  if (i.op == OpCode::kReduceReplicas) {
    const std::int64_t data = (layout.shard_size + own_lookup) * kElementBytes;
    const std::int64_t bytes = 2 * (groups_.num_replicas - 1) * data / groups_.num_replicas;
    return {bytes, bytes};
  }
  return {};
}

std::vector<Traffic> traffic_of(const StepProgram& program, const CallSizes& sizes) {
  std::vector<Traffic> rows;
  for (const Instruction& i : program.instructions) {
    const std::string_view collective = collective_of(i.op);
    if (collective.empty()) continue;
    auto row =
        std::ranges::find_if(rows, [&](const Traffic& t) { return t.collective == collective && t.group == i.group; });
    if (row == rows.end()) row = rows.insert(rows.end(), {.collective = std::string(collective), .group = i.group});
    const CallBytes bytes = sizes.of(i);
    ++row->calls;
    row->bytes.sent += bytes.sent;
    row->bytes.received += bytes.received;
  }
  return rows;
}

}  // namespace tessera
