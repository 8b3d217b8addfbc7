#include "fsdp/ledger.h"

#include <algorithm>
#include <numeric>

#include "fsdp/shard_layout.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

std::size_t index_of(MemoryCategory category) {
  return static_cast<std::size_t>(category);
}

// What the allocator hands out for so many fp32 elements: multiples of 64 bytes.
std::int64_t block_bytes(std::int64_t elements) {
  return (elements + kAlignElements - 1) / kAlignElements * kAlignElements * static_cast<std::int64_t>(sizeof(float));
}

// The bytes that a unit's buffers take when they exist, and which of them do: ShardedUnit's members, as numbers.
struct UnitMemory {
  UnitMemory(const ModelSpec& model, const UnitSpec& unit, const ShardGroups& groups) {
    const ShardLayout layout = make_shard_layout(model, unit, groups.num_shards);
    scattered = layout.num_shards > 1;
    shard = block_bytes(layout.shard_size);
    flat = block_bytes(layout.flat_size());
    if (layout.tied_slot < 0) return;
    lookup = block_bytes(layout.slots[static_cast<std::size_t>(layout.tied_slot)].size);
    lookup_shard =
        block_bytes(static_cast<std::int64_t>(layout.lookup_counts()[static_cast<std::size_t>(groups.shard)]));
  }

  bool scattered = false;  // over more than one shard
  // A shard, or all of it, of parameters and gradients alike; the tied matrix's second gradient segment, and this rank's part of it.
  std::int64_t shard = 0, flat = 0, lookup = 0, lookup_shard = 0;
  std::vector<std::int64_t> partials;  // full gradients with their lookup segments, by open lane
  std::int64_t reducing = 0;           // the gradient shard that a reduce is filling, with its lookup part
};

class Walk {
 public:
  Walk(const ModelSpec& model, const std::vector<UnitSpec>& units, const ShardGroups& groups,
       std::int64_t staging_bytes)
      : model_(model), unit_of_segment_(model.segments.size(), 0) {
    live_[index_of(MemoryCategory::kWorkspace)] = model.constant_bytes;
    live_[index_of(MemoryCategory::kCheckpoint)] = staging_bytes;
    for (std::size_t u = 0; u < units.size(); ++u) {
      units_.emplace_back(model, units[u], groups);
      live_[index_of(MemoryCategory::kParameters)] += units_.back().shard;
      if (!units[u].frozen) live_[index_of(MemoryCategory::kOptimizer)] += 2 * units_.back().shard;
      for (const int s : units[u].segments) unit_of_segment_[static_cast<std::size_t>(s)] = u;
    }
    ledger_.at_rest = ledger_.peaks = ledger_.at_peak = live_;
    ledger_.peak_without_gathered = total_of(live_);
  }

  Ledger run(const StepProgram& program) {
    ledger_.timeline.reserve(program.instructions.size());
    for (const Instruction& instruction : program.instructions) {
      line_peak_ = total_of(live_);
      apply(instruction);
      ledger_.timeline.push_back({total_of(live_), line_peak_});
    }
    return std::move(ledger_);
  }

 private:
  UnitMemory& unit(const Instruction& i) { return units_[static_cast<std::size_t>(i.unit)]; }
  const SegmentSpec& segment(const Instruction& i) const {
    return model_.segments[static_cast<std::size_t>(i.segment)];
  }

  void apply(const Instruction& i) {
    switch (i.op) {
      case OpCode::kUnshard:
        if (unit(i).scattered) change(MemoryCategory::kGathered, unit(i).flat);
        break;
      case OpCode::kReshard:
        if (unit(i).scattered) change(MemoryCategory::kGathered, -unit(i).flat);
        break;
      case OpCode::kForward: run_segment(segment(i).forward); break;
      case OpCode::kHeadLoss: run_segment(segment(i).backward); break;
      case OpCode::kBackward:
        if (i.segment == 0) open_lookup(units_[unit_of_segment_.front()]);
        run_segment(segment(i).backward);
        break;
      case OpCode::kForwardOnly:
      case OpCode::kEvaluateHead: run_segment(segment(i).evaluate); break;
      case OpCode::kLogits: run_segment(segment(i).logits); break;
      case OpCode::kOpenGradient:
        unit(i).partials.push_back(unit(i).flat);
        change(MemoryCategory::kGradients, unit(i).flat);
        break;
      case OpCode::kMergeLanes: drop_newest(unit(i)); break;
      case OpCode::kReduce: reduce(unit(i)); break;
      case OpCode::kWaitReduce: wait_reduce(unit(i), i.accumulate); break;
      case OpCode::kDropGradient: drop_newest(unit(i)); break;
      case OpCode::kWaitUnshard:
      case OpCode::kReduceReplicas:
      case OpCode::kAgreeTokens:
      case OpCode::kAgreeNorm:
      case OpCode::kAgreeLoss:
      case OpCode::kUpdate:
      case OpCode::kRehearseBroadcast: break;
    }
  }

  // The lane's part of a tied matrix that the embedding's backward writes.
  void open_lookup(UnitMemory& unit) {
    require(!unit.partials.empty(), "a backward writes into an open gradient");
    if (unit.partials.back() > unit.flat) return;
    unit.partials.back() += unit.lookup;
    change(MemoryCategory::kGradients, unit.lookup);
  }

  void drop_newest(UnitMemory& unit) {
    require(!unit.partials.empty(), "a full gradient exists before it goes");
    change(MemoryCategory::kGradients, -unit.partials.back());
    unit.partials.pop_back();
  }

  void reduce(UnitMemory& unit) {
    if (!unit.scattered) return;
    unit.reducing = unit.shard + unit.lookup_shard;
    change(MemoryCategory::kGradients, unit.reducing);
  }

  void wait_reduce(UnitMemory& unit, bool accumulate) {
    // Of one shard, what was added up is the gradient shard; of several, it goes.
    if (unit.scattered) {
      drop_newest(unit);
    } else {
      unit.reducing = unit.partials.back();
      unit.partials.pop_back();
    }
    const std::int64_t stays = accumulate ? 0 : unit.shard;
    change(MemoryCategory::kGradients, stays - unit.reducing);
    unit.reducing = 0;
  }

  void run_segment(const SegmentMemory& segment) {
    const auto activations = index_of(MemoryCategory::kActivations);
    const auto workspace = index_of(MemoryCategory::kWorkspace);
    note_category(activations, live_[activations] + segment.activations_peak);
    note_category(workspace, live_[workspace] + segment.workspace_peak);
    MemoryBytes highest = live_;
    highest[activations] += segment.activations_at_peak;
    highest[workspace] += segment.workspace_at_peak;
    note_total(highest);
    change(MemoryCategory::kActivations, segment.kept);
  }

  void change(MemoryCategory category, std::int64_t bytes) {
    live_[index_of(category)] += bytes;
    note_category(index_of(category), live_[index_of(category)]);
    note_total(live_);
  }

  void note_category(std::size_t category, std::int64_t bytes) {
    ledger_.peaks[category] = std::max(ledger_.peaks[category], bytes);
  }

  void note_total(const MemoryBytes& bytes) {
    const std::int64_t total = total_of(bytes);
    line_peak_ = std::max(line_peak_, total);
    const std::int64_t gathered = bytes[index_of(MemoryCategory::kGathered)];
    ledger_.peak_without_gathered = std::max(ledger_.peak_without_gathered, total - gathered);
    if (total <= ledger_.peak()) return;
    ledger_.at_peak = bytes;
    ledger_.peak_instruction = static_cast<int>(ledger_.timeline.size());
  }

  const ModelSpec& model_;
  std::vector<std::size_t> unit_of_segment_;
  std::vector<UnitMemory> units_;
  MemoryBytes live_{};
  std::int64_t line_peak_ = 0;
  Ledger ledger_;
};

}  // namespace

std::int64_t total_of(const MemoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

Ledger make_ledger(const StepProgram& program, const ModelSpec& model, const std::vector<UnitSpec>& units,
                   const ShardGroups& groups, std::int64_t staging_bytes) {
  return Walk(model, units, groups, staging_bytes).run(program);
}

}  // namespace tessera
