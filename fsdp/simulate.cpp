#include "fsdp/simulate.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <span>

#include "fsdp/ledger.h"
#include "fsdp/traffic.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

struct Interval {
  double begin = 0, end = 0;
};

double length(std::span<const Interval> intervals) {
  double sum = 0;
  for (const Interval& i : intervals) sum += i.end - i.begin;
  return sum;
}

// Of two lists whose intervals are disjoint and ascending.
double common_length(std::span<const Interval> a, std::span<const Interval> b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return sum;
}

std::vector<Interval> united(std::vector<Interval> a, std::span<const Interval> b) {
  a.insert(a.end(), b.begin(), b.end());
  std::ranges::sort(a, {}, &Interval::begin);
  std::vector<Interval> out;
  for (const Interval& i : a) {
    if (out.empty() || i.begin > out.back().end) {
      out.push_back(i);
    } else {
      out.back().end = std::max(out.back().end, i.end);
    }
  }
  return out;
}

// The device's memory for gathered units: blocks are kept, and serve their size again.
class GatheredBlocks {
 public:
  // At the host's time `now`. Returns the block's index.
  std::size_t take(std::int64_t bytes, double now) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].bytes != bytes || blocks_[b].free_from > now) continue;
      blocks_[b].free_from = kInUse;
      return b;
    }
    blocks_.push_back({bytes, kInUse});
    return blocks_.size() - 1;
  }
  void give_back(std::size_t block, double compute_passes) { blocks_[block].free_from = compute_passes; }
  std::int64_t reserved() const {
    std::int64_t sum = 0;
    for (const Block& block : blocks_) sum += block.bytes;
    return sum;
  }

 private:
  static constexpr double kInUse = std::numeric_limits<double>::infinity();
  struct Block {
    std::int64_t bytes;
    double free_from;
  };
  std::vector<Block> blocks_;
};

class Clockwork {
 public:
  Clockwork(const StepProgram& program, const ModelSpec& model, const std::vector<UnitSpec>& units,
            const ShardGroups& groups, const DeviceModel& device)
      : program_(program),
        model_(model),
        device_(device),
        sizes_(model, units, groups),
        block_of_unit_(units.size(), 0) {
    for (const UnitSpec& unit : units) {
      const std::int64_t flat = make_shard_layout(model, unit, groups.num_shards).flat_size();
      gathered_bytes_.push_back(groups.num_shards > 1 ? flat * static_cast<std::int64_t>(sizeof(float)) : 0);
    }
  }

  void run() {
    ends_.reserve(program_.instructions.size());
    for (const Instruction& i : program_.instructions) {
      host_ += device_.issue_seconds;
      if (i.op == OpCode::kUnshard) take_block(i);
      ends_.push_back(run_on_stream(i));
      if (i.op == OpCode::kReshard) give_block_back(i, ends_.back());
      if (host_waits_for(i)) host_ = std::max(host_, ends_.back());
    }
  }

  std::span<const Interval> busy(StreamId stream) const { return busy_[static_cast<std::size_t>(stream)]; }
  double end() const { return std::max(host_, *std::ranges::max_element(ends_)); }
  std::int64_t gathered_reserved() const { return blocks_.reserved(); }

 private:
  double seconds(const Instruction& i) const {
    const auto flops = [&] {
      return static_cast<double>(model_.segments[static_cast<std::size_t>(i.segment)].forward_flops);
    };
    switch (i.op) {
      case OpCode::kForward:
      case OpCode::kForwardOnly:
      case OpCode::kEvaluateHead: return flops() / device_.flops_per_second;
      case OpCode::kBackward: return 2 * flops() / device_.flops_per_second;
      case OpCode::kHeadLoss: return 3 * flops() / device_.flops_per_second;
      default: break;
    }
    if (collective_of(i.op).empty()) return 0;
    const CallBytes bytes = sizes_.of(i);
    return device_.call_seconds + static_cast<double>(std::max(bytes.sent, bytes.received)) / device_.bytes_per_second;
  }

  // Returns when it is over.
  double run_on_stream(const Instruction& i) {
    std::vector<Interval>& stream = busy_[static_cast<std::size_t>(i.stream)];
    double begin = std::max(host_, stream_end_[static_cast<std::size_t>(i.stream)]);
    for (const int wait : i.waits) begin = std::max(begin, ends_[static_cast<std::size_t>(wait)]);
    const double end = begin + seconds(i);
    stream_end_[static_cast<std::size_t>(i.stream)] = end;
    if (end > begin) stream.push_back({begin, end});
    return end;
  }

  void take_block(const Instruction& i) {
    const auto unit = static_cast<std::size_t>(i.unit);
    while (device_.rate_limit > 0 && static_cast<int>(reshards_ahead_.size()) >= device_.rate_limit) {
      host_ = std::max(host_, reshards_ahead_.front());
      reshards_ahead_.pop_front();
    }
    if (gathered_bytes_[unit] > 0) block_of_unit_[unit] = blocks_.take(gathered_bytes_[unit], host_);
  }

  void give_block_back(const Instruction& i, double compute_passes) {
    const auto unit = static_cast<std::size_t>(i.unit);
    if (gathered_bytes_[unit] > 0) blocks_.give_back(block_of_unit_[unit], compute_passes);
    reshards_ahead_.push_back(compute_passes);
  }

  bool host_waits_for(const Instruction& i) const {
    if (i.op == OpCode::kAgreeNorm || i.op == OpCode::kAgreeLoss) return true;
    return !device_.host_runs_ahead && i.stream == StreamId::kCompute;
  }

  static constexpr std::size_t kNumStreams = 4;

  const StepProgram& program_;
  const ModelSpec& model_;
  const DeviceModel& device_;
  CallSizes sizes_;
  std::vector<std::int64_t> gathered_bytes_;  // of a unit's full parameter
  std::vector<std::size_t> block_of_unit_;
  GatheredBlocks blocks_;
  double host_ = 0;
  std::array<double, kNumStreams> stream_end_{};
  std::array<std::vector<Interval>, kNumStreams> busy_;
  std::vector<double> ends_;           // by instruction
  std::deque<double> reshards_ahead_;  // when the compute stream passes those issued; the oldest first
};

}  // namespace

Simulation simulate(const StepProgram& program, const ModelSpec& model, const std::vector<UnitSpec>& units,
                    const ShardGroups& groups, const DeviceModel& device) {
  require(device.flops_per_second > 0 && device.bytes_per_second > 0, "a device's rates are positive");
  require(!program.instructions.empty(), "a program has instructions");
  Clockwork clockwork(program, model, units, groups, device);
  clockwork.run();
  const std::span<const Interval> compute = clockwork.busy(StreamId::kCompute);
  const std::span<const Interval> gather = clockwork.busy(StreamId::kGather);
  const std::span<const Interval> reduce = clockwork.busy(StreamId::kReduce);
  const std::vector<Interval> communication = united({gather.begin(), gather.end()}, reduce);
  const Ledger ledger = make_ledger(program, model, units, groups);
  return {.step_seconds = clockwork.end(),
          .compute_seconds = length(compute),
          .gather_seconds = length(gather),
          .reduce_seconds = length(reduce),
          .communication_seconds = length(communication),
          .overlapped_seconds = common_length(communication, compute),
          .gathers_overlapped_seconds = common_length(gather, compute),
          .allocated_peak = ledger.peak(),
          .reserved_peak = ledger.peak_without_gathered + clockwork.gathered_reserved()};
}

}  // namespace tessera
