#include "fsdp/shard_layout.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace tessera {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

const ParameterSlot* ShardLayout::find(int parameter) const {
  const auto it =
      std::find_if(slots.begin(), slots.end(), [&](const ParameterSlot& s) { return s.parameter == parameter; });
  return it == slots.end() ? nullptr : &*it;
}

std::vector<ShardSlice> ShardLayout::slices(int shard) const {
  const std::int64_t first = shard * shard_size;
  const std::int64_t last = first + shard_size;
  std::vector<ShardSlice> out;
  for (const ParameterSlot& slot : slots) {
    const std::int64_t from = std::max(first, slot.offset);
    const std::int64_t to = std::min(last, slot.offset + slot.size);
    if (from < to) out.push_back({slot.parameter, from - slot.offset, from - first, to - from});
  }
  return out;
}

std::vector<std::uint64_t> ShardLayout::lookup_counts() const {
  std::vector<std::uint64_t> counts(static_cast<std::size_t>(num_shards), 0);
  if (tied_slot < 0) return counts;
  const ParameterSlot& slot = slots[static_cast<std::size_t>(tied_slot)];
  for (int shard = 0; shard < num_shards; ++shard) {
    const std::int64_t from = std::max(shard * shard_size, slot.offset);
    const std::int64_t to = std::min((shard + 1) * shard_size, slot.offset + slot.size);
    counts[static_cast<std::size_t>(shard)] = static_cast<std::uint64_t>(std::max<std::int64_t>(0, to - from));
  }
  return counts;
}

std::int64_t ShardLayout::lookup_shard_offset(int shard) const {
  if (tied_slot < 0) return 0;
  return std::max<std::int64_t>(0, slots[static_cast<std::size_t>(tied_slot)].offset - shard * shard_size);
}

std::vector<std::uint64_t> ShardLayout::shard_counts() const {
  return std::vector<std::uint64_t>(static_cast<std::size_t>(num_shards), static_cast<std::uint64_t>(shard_size));
}

ShardLayout make_shard_layout(const ModelSpec& model, const UnitSpec& unit, int num_shards) {
  require(num_shards >= 1, "a shard layout needs at least one shard");
  ShardLayout layout;
  layout.num_shards = num_shards;
  std::int64_t offset = 0;
  for (const int index : unit.parameters) {
    const ParameterSpec& spec = model.parameters.at(static_cast<std::size_t>(index));
    if (spec.tied) {
      require(layout.tied_slot < 0, "a unit holds at most one tied matrix");
      layout.tied_slot = static_cast<int>(layout.slots.size());
    }
    layout.slots.push_back({index, offset, spec.shape.num_elements()});
    offset = round_up(offset + spec.shape.num_elements(), kAlignElements);
  }
  layout.shard_size = round_up((offset + num_shards - 1) / num_shards, kAlignElements);
  return layout;
}

}  // namespace tessera
