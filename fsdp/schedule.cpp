#include "fsdp/schedule.h"

#include <algorithm>
#include <bit>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// A maximal run of segments of one unit: what is between two changes of unit in a pass over the model.
struct Visit {
  int unit = 0;
  bool backward = false;      // the head's visit counts as backward: the gradient starts there
  std::vector<int> segments;  // in the order they run
};

// A micro-batch of the step, and what follows it. (Whoever reads the lanes' tree finds the order of the sum here.)
struct Turn {
  int micro = 0;
  int lane = 0;             // of this rank
  bool accumulate = false;  // adds to the lane's gradient
  bool ends_lane = false;   // the lane's gradient is complete, and joins its neighbours
  bool reduces = false;     // all lanes are joined: the gradient is reduced
  bool adds_shard = false;  // … and added to a shard that an earlier turn reduced
  bool last = false;        // of the step
};

// Appends instructions and keeps track of what is full, in flight and pending.
class Builder {
 public:
  Builder(const ModelSpec& model, const std::vector<UnitSpec>& units, const ScheduleOptions& options)
      : model_(model),
        units_(units),
        options_(options),
        full_(units.size(), options.full_parameters == FullParameters::kAlways),
        gathering_(units.size()) {
    unit_of_segment_.resize(model.segments.size(), 0);
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (const int s : units[u].segments) unit_of_segment_[static_cast<std::size_t>(s)] = static_cast<int>(u);
    }
    program_.title = options.title;
    for (const UnitSpec& unit : units) program_.unit_names.push_back(unit.name);
    for (const SegmentSpec& segment : model.segments) program_.segment_names.push_back(segment.name);
  }

  StepProgram training() {
    agree_tokens_ =
        add({.op = OpCode::kAgreeTokens, .stream = StreamId::kGather, .group = "world", .phase = "forward"});
    const std::vector<Visit> visits = training_visits();
    for (const Turn& turn : turns()) {
      for (std::size_t v = 0; v < visits.size(); ++v) train_visit(visits, v, turn);
    }
    if (pending_reduce_ >= 0) wait_reduce();
    const int gradients = static_cast<int>(program_.instructions.size()) - 1;
    const int norm = add({.op = OpCode::kAgreeNorm,
                          .stream = StreamId::kReduce,
                          .group = "world",
                          .phase = "update",
                          .waits = {gradients}});
    add({.op = OpCode::kUpdate, .phase = "update", .waits = {norm}});
    return std::move(program_);
  }

  StepProgram forward_only(OpCode head, const char* phase) {
    std::vector<Visit> visits;
    for (int s = 0; s < num_segments(); ++s) push_segment(visits, s, false);
    for (int micro = 0; micro < options_.num_micro_batches; ++micro) {
      for (std::size_t v = 0; v < visits.size(); ++v) {
        const Visit& visit = visits[v];
        acquire(visit.unit, phase);
        prefetch_forward(visits, v, phase);
        for (const int s : visit.segments) {
          const OpCode op = s + 1 == num_segments() ? head : OpCode::kForwardOnly;
          add({.op = op, .segment = s, .micro_batch = micro, .phase = phase});
        }
        if (!used_later(visits, v)) release(visit.unit, phase, micro + 1 == options_.num_micro_batches);
      }
    }
    if (head == OpCode::kEvaluateHead) {
      add({.op = OpCode::kAgreeLoss, .stream = StreamId::kReduce, .group = "world", .phase = phase});
    }
    return std::move(program_);
  }

 private:
  int num_segments() const { return static_cast<int>(model_.segments.size()); }
  int unit_of(int segment) const { return unit_of_segment_[static_cast<std::size_t>(segment)]; }

  int add(Instruction instruction) {
    program_.instructions.push_back(std::move(instruction));
    return static_cast<int>(program_.instructions.size()) - 1;
  }

  void push_segment(std::vector<Visit>& visits, int segment, bool backward) const {
    if (visits.empty() || visits.back().unit != unit_of(segment) || visits.back().backward != backward) {
      visits.push_back({unit_of(segment), backward, {}});
    }
    visits.back().segments.push_back(segment);
  }

  std::vector<Visit> training_visits() const {
    std::vector<Visit> visits;
    for (int s = 0; s + 1 < num_segments(); ++s) push_segment(visits, s, false);
    for (int s = num_segments() - 1; s >= 0; --s) push_segment(visits, s, true);
    return visits;
  }

  std::vector<Turn> turns() const {
    const int per_lane = options_.micro_batches_per_lane;
    const int lanes = options_.num_micro_batches / per_lane;
    std::vector<Turn> turns;
    if (options_.reduce_every_micro_batch) {
      for (int index = 0; index < per_lane; ++index) {
        for (int lane = 0; lane < lanes; ++lane) {
          turns.push_back({.micro = lane * per_lane + index,
                           .lane = lane,
                           .ends_lane = true,
                           .reduces = lane + 1 == lanes,
                           .adds_shard = index > 0});
        }
      }
    } else {
      for (int micro = 0; micro < options_.num_micro_batches; ++micro) {
        turns.push_back({.micro = micro,
                         .lane = micro / per_lane,
                         .accumulate = micro % per_lane != 0,
                         .ends_lane = (micro + 1) % per_lane == 0,
                         .reduces = micro + 1 == options_.num_micro_batches});
      }
    }
    turns.back().last = true;
    return turns;
  }

  bool used_later(const std::vector<Visit>& visits, std::size_t v) const {
    return std::any_of(visits.begin() + static_cast<std::ptrdiff_t>(v) + 1, visits.end(),
                       [&](const Visit& later) { return later.unit == visits[v].unit; });
  }

  void unshard(int unit, const char* phase) {
    gathering_[static_cast<std::size_t>(unit)] = 1 + add({.op = OpCode::kUnshard,
                                                          .stream = StreamId::kGather,
                                                          .unit = unit,
                                                          .group = options_.shard_group,
                                                          .phase = phase});
    ++inflight_;
  }

  // Makes the unit full: issues its all_gather unless a prefetch did, and waits unless that happened before.
  void acquire(int unit, const char* phase) {
    const auto u = static_cast<std::size_t>(unit);
    if (full_[u]) return;
    if (gathering_[u] == 0) unshard(unit, phase);
    add({.op = OpCode::kWaitUnshard, .unit = unit, .phase = phase, .waits = {gathering_[u] - 1}});
    gathering_[u] = 0;
    --inflight_;
    full_[u] = true;
  }

  bool may_prefetch(int unit) const {
    const auto u = static_cast<std::size_t>(unit);
    return !full_[u] && gathering_[u] == 0 && inflight_ < options_.max_inflight_all_gathers;
  }

  void prefetch_forward(const std::vector<Visit>& visits, std::size_t v, const char* phase) {
    for (std::size_t ahead = 1;
         ahead <= static_cast<std::size_t>(options_.forward_prefetch_depth) && v + ahead < visits.size(); ++ahead) {
      if (visits[v + ahead].backward) return;
      if (may_prefetch(visits[v + ahead].unit)) unshard(visits[v + ahead].unit, phase);
    }
  }

  void prefetch_backward(const std::vector<Visit>& visits, std::size_t v) {
    if (v + 1 < visits.size() && may_prefetch(visits[v + 1].unit)) unshard(visits[v + 1].unit, "backward");
  }

  void reshard(int unit, const char* phase) {
    add({.op = OpCode::kReshard, .unit = unit, .phase = phase});
    full_[static_cast<std::size_t>(unit)] = false;
  }

  // After the unit's last use in a micro-batch.
  void release(int unit, const char* phase, bool step_ends) {
    if (options_.full_parameters == FullParameters::kAlways) return;
    if (options_.full_parameters == FullParameters::kStep && !step_ends) return;
    reshard(unit, phase);
  }

  void train_visit(const std::vector<Visit>& visits, std::size_t v, const Turn& turn) {
    const Visit& visit = visits[v];
    acquire(visit.unit, visit.backward ? "backward" : "forward");
    if (visit.backward) {
      backward_visit(visits, v, turn);
    } else {
      forward_visit(visits, v, turn);
    }
  }

  void forward_visit(const std::vector<Visit>& visits, std::size_t v, const Turn& turn) {
    const Visit& visit = visits[v];
    prefetch_forward(visits, v, "forward");
    for (const int s : visit.segments) {
      add({.op = OpCode::kForward, .segment = s, .micro_batch = turn.micro, .phase = "forward"});
    }
    const bool forward_again =
        std::any_of(visits.begin() + static_cast<std::ptrdiff_t>(v) + 1, visits.end(),
                    [&](const Visit& later) { return later.unit == visit.unit && !later.backward; });
    // The root is used again by the head at once: it stays.
    if (options_.full_parameters == FullParameters::kSegment && visit.unit != 0 && !forward_again) {
      reshard(visit.unit, "forward");
    }
  }

  void backward_visit(const std::vector<Visit>& visits, std::size_t v, const Turn& turn) {
    const Visit& visit = visits[v];
    if (options_.backward_prefetch == BackwardPrefetch::kPre) prefetch_backward(visits, v);
    const bool first =
        !std::any_of(visits.begin(), visits.begin() + static_cast<std::ptrdiff_t>(v),
                     [&](const Visit& earlier) { return earlier.unit == visit.unit && earlier.backward; });
    if (first && !turn.accumulate) open_gradient(visit.unit, turn.micro);
    int last = -1;
    for (const int s : visit.segments) {
      Instruction run{.op = OpCode::kBackward,
                      .segment = s,
                      .micro_batch = turn.micro,
                      .accumulate = turn.accumulate,
                      .phase = "backward"};
      if (s + 1 == num_segments()) {
        run.op = OpCode::kHeadLoss;
        run.waits = {agree_tokens_};
      }
      last = add(std::move(run));
    }
    if (options_.backward_prefetch == BackwardPrefetch::kPost) prefetch_backward(visits, v);
    if (used_later(visits, v)) return;
    release(visit.unit, "backward", turn.last);
    if (turn.ends_lane) finish_lane(visit.unit, turn, last);
  }

  void open_gradient(int unit, int micro) {
    // The unit's gradient of an earlier turn may still be on its way.
    if (pending_reduce_ >= 0 && pending_unit() == unit) wait_reduce();
    add({.op = OpCode::kOpenGradient, .unit = unit, .micro_batch = micro, .phase = "backward"});
  }

  // The lane's gradient of this unit is complete. Neighbours are joined level by level: after lane l, as many joins as l has trailing ones.
  void finish_lane(int unit, const Turn& turn, int last) {
    if (units_[static_cast<std::size_t>(unit)].frozen) {
      add({.op = OpCode::kDropGradient, .unit = unit, .phase = "backward"});
      return;
    }
    for (int join = 0; join < std::countr_one(static_cast<unsigned>(turn.lane)); ++join) {
      last = add({.op = OpCode::kMergeLanes, .unit = unit, .phase = "backward"});
    }
    if (turn.reduces) reduce(unit, turn, last);
  }

  void reduce(int unit, const Turn& turn, int last) {
    // At most one unit's gradient is in flight when the next is issued: two full gradients at a time.
    if (pending_reduce_ >= 0) wait_reduce();
    const auto issue = [&](OpCode op, const std::string& group) {
      if (group.empty()) return;
      Instruction call{.op = op, .stream = StreamId::kReduce, .unit = unit, .group = group, .phase = "backward"};
      if (pending_reduce_ < 0) call.waits = {last};
      pending_reduce_ = add(std::move(call));
    };
    issue(OpCode::kReduce, options_.shard_group);
    issue(OpCode::kReduceReplicas, options_.replica_group);
    pending_adds_ = turn.adds_shard;
  }

  int pending_unit() const { return program_.instructions[static_cast<std::size_t>(pending_reduce_)].unit; }

  void wait_reduce() {
    add({.op = OpCode::kWaitReduce,
         .unit = pending_unit(),
         .accumulate = pending_adds_,
         .phase = "backward",
         .waits = {pending_reduce_}});
    pending_reduce_ = -1;
  }

  const ModelSpec& model_;
  const std::vector<UnitSpec>& units_;
  const ScheduleOptions& options_;
  StepProgram program_;
  std::vector<int> unit_of_segment_;
  std::vector<char> full_;
  std::vector<int> gathering_;  // 1 + index of the all_gather in flight, 0: none
  int inflight_ = 0;
  int agree_tokens_ = 0;
  int pending_reduce_ = -1;    // the last call of the gradient in flight; -1: none is
  bool pending_adds_ = false;  // to a shard that is there
};

void check(const ScheduleOptions& options) {
  require(options.num_micro_batches >= 1 && options.micro_batches_per_lane >= 1 &&
              options.num_micro_batches % options.micro_batches_per_lane == 0,
          "a rank's micro-batches are whole lanes");
  require(options.max_inflight_all_gathers >= 1 && options.forward_prefetch_depth >= 0, "prefetch limits are positive");
  const int lanes = options.num_micro_batches / options.micro_batches_per_lane;
  require(std::has_single_bit(static_cast<unsigned>(lanes)), "lanes per rank are a power of two");
  require(!options.shard_group.empty() || options.full_parameters == FullParameters::kAlways,
          "what is gathered has a group");
  require(!options.shard_group.empty() || !options.replica_group.empty(), "gradients are added over some group");
}

}  // namespace

StepProgram build_training_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                   const ScheduleOptions& options) {
  check(options);
  return Builder(model, units, options).training();
}

StepProgram build_evaluation_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                     const ScheduleOptions& options) {
  require(options.num_micro_batches >= 1, "an evaluation has at least one micro-batch");
  return Builder(model, units, options).forward_only(OpCode::kEvaluateHead, "evaluate");
}

StepProgram build_token_program(const ModelSpec& model, const std::vector<UnitSpec>& units,
                                const ScheduleOptions& options) {
  require(options.num_micro_batches == 1, "a token comes from one micro-batch");
  return Builder(model, units, options).forward_only(OpCode::kLogits, "generate");
}

}  // namespace tessera
