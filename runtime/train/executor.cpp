#include "runtime/train/executor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/train/chaos.h"
#include "runtime/train/program_check.h"
#include "runtime/train/trace_recorder.h"

namespace tessera {
namespace {

// The words each rank contributes to the agreement at the end of a step: sums first, then one slot per rank (a sum over ranks that each write
// their own slot is a gather).
constexpr int kSlotWords = 4;  // max loss (bits) | flags | allocated peak | reserved peak

// Of the two flags of a slot.
constexpr std::int64_t kNonFinite = 1;
constexpr std::int64_t kHasTargets = 2;

}  // namespace

struct Executor::Run {
  const StepInput& input;
  StepOutcome outcome;
  LossSum losses;                // of this rank
  std::int64_t num_targets = 0;  // of the step, all ranks
  Work tokens_work;
  std::span<float> logits;
  float gradient_scale = 0.0F;
  bool finite = true;
  double first_loss = 0.0;     // mean of this rank's micro-batch 0
  std::int64_t rehearsed = 0;  // what a rehearsal broadcast sends
};

Executor::Executor(ShardedModel& model, AdamWOptimizer* optimizer, GptRunner& runner, CommunicatorSet& communicators,
                   Device& device, ExecutorStreams streams, const Options& options)
    : model_(model),
      optimizer_(optimizer),
      runner_(runner),
      communicators_(communicators),
      device_(device),
      streams_(streams),
      options_(options) {}

Executor::~Executor() = default;

Executor::Run& Executor::begin(const StepInput& input) {
  run_ = std::make_unique<Run>(Run{.input = input});
  return *run_;
}

StepOutcome Executor::train(const StepProgram& program, const StepInput& input) {
  Run& run = begin(input);
  walk(program, run);
  model_.drop_gradients();
  return run.outcome;
}

EvaluationOutcome Executor::evaluate(const StepProgram& program, const StepInput& input) {
  Run& run = begin(input);
  walk(program, run);
  runner_.reset();
  return {run.losses, run.outcome.stop};
}

void Executor::logits(const StepProgram& program, const StepInput& input, std::span<float> out) {
  Run& run = begin(input);
  run.logits = out;
  walk(program, run);
  runner_.reset();
}

void Executor::walk(const StepProgram& program, Run& run) {
  const StepProgram& expected = run.input.expected != nullptr ? *run.input.expected : program;
  if (options_.check != nullptr) options_.check->begin(expected, run.input.step);
  for (const Instruction& instruction : program.instructions) {
    if (options_.trace != nullptr) options_.trace->begin(program, instruction);
    execute(program, instruction, run);
    if (options_.trace != nullptr) options_.trace->end();
  }
  if (options_.check != nullptr) options_.check->end();
}

void Executor::enter(TraceClass trace_class) {
  if (options_.trace != nullptr) options_.trace->enter(trace_class);
}

StreamView Executor::stream(StreamId id) const {
  switch (id) {
    case StreamId::kGather: return streams_.gather;
    case StreamId::kReduce: return streams_.reduce;
    default: return streams_.compute;
  }
}

CollectiveTag Executor::tag(const StepProgram& program, const Instruction& i, const Run& run) const {
  return {.what = i.unit >= 0 ? program.unit_names[static_cast<std::size_t>(i.unit)] : std::string(name_of(i.op)),
          .phase = i.phase,
          .step = run.input.step,
          .micro_batch = i.micro_batch};
}

void Executor::execute(const StepProgram& program, const Instruction& i, Run& run) {
  const auto micro_batch = [&] {
    return MicroBatch{run.input.batch->micro_tokens(i.micro_batch), run.input.batch->micro_targets(i.micro_batch)};
  };
  const auto add_losses = [&](const LossSum& losses) {
    run.losses.sum.merge(losses.sum);
    run.losses.max_loss =
        run.losses.num_targets == 0 ? losses.max_loss : std::max(run.losses.max_loss, losses.max_loss);
    run.losses.num_targets += losses.num_targets;
  };
  switch (i.op) {
    case OpCode::kAgreeTokens: agree_tokens(i, run); break;
    case OpCode::kUnshard:
      model_.unit(i.unit).unshard(communicators_.find(i.group, i.stream), stream(i.stream), tag(program, i, run));
      break;
    case OpCode::kWaitUnshard: model_.unit(i.unit).wait_unshard(streams_.compute); break;
    case OpCode::kReshard: model_.unit(i.unit).reshard(); break;
    case OpCode::kForward: runner_.forward(i.segment, micro_batch(), model_.parameter_views(i.segment)); break;
    case OpCode::kHeadLoss: {
      run.tokens_work.wait(streams_.compute);
      enter(TraceClass::kCompute);
      // 1 / valid targets of the whole step, rounded once: the gradient of the mean. No targets: every loss and gradient is 0.
      const float scale = run.num_targets > 0 ? static_cast<float>(1.0 / static_cast<double>(run.num_targets)) : 0.0F;
      LossSum losses = runner_.head_loss(micro_batch(), model_.parameter_views(i.segment),
                                         model_.gradient_views(i.segment, streams_.compute), i.accumulate, scale);
      // Before a rehearsed fault: a certificate is about what the model computes.
      if (i.micro_batch == 0)
        run.first_loss = losses.num_targets > 0 ? losses.sum.value() / static_cast<double>(losses.num_targets) : 0.0;
      if (options_.chaos != nullptr) options_.chaos->at_head_loss(losses);
      add_losses(losses);
      break;
    }
    case OpCode::kOpenGradient: model_.unit(i.unit).begin_lane(streams_.compute); break;
    case OpCode::kBackward:
      if (options_.chaos != nullptr) options_.chaos->at_backward();
      runner_.backward(i.segment, micro_batch(), model_.parameter_views(i.segment),
                       model_.gradient_views(i.segment, streams_.compute), i.accumulate);
      break;
    case OpCode::kMergeLanes: model_.unit(i.unit).merge_lanes(streams_.compute); break;
    case OpCode::kReduce:
      model_.unit(i.unit).reduce(communicators_.find(i.group, i.stream), streams_.compute, stream(i.stream),
                                 tag(program, i, run));
      break;
    case OpCode::kReduceReplicas:
      model_.unit(i.unit).reduce_replicas(communicators_.find(i.group, i.stream), streams_.compute, stream(i.stream),
                                          tag(program, i, run));
      break;
    case OpCode::kWaitReduce:
      model_.unit(i.unit).wait_reduce(streams_.compute);
      enter(model_.unit(i.unit).finish_adds(i.accumulate) ? TraceClass::kCompute : TraceClass::kHost);
      model_.unit(i.unit).finish_reduce(streams_.compute, i.accumulate);
      break;
    case OpCode::kDropGradient: model_.unit(i.unit).drop_gradient(); break;
    case OpCode::kAgreeNorm: agree_norm(i, run); break;
    case OpCode::kUpdate: update(run); break;
    case OpCode::kForwardOnly: runner_.forward_only(i.segment, micro_batch(), model_.parameter_views(i.segment)); break;
    case OpCode::kEvaluateHead:
      add_losses(runner_.evaluate_head(micro_batch(), model_.parameter_views(i.segment), run.input.loss_kind));
      break;
    case OpCode::kAgreeLoss: agree_loss(i, run); break;
    case OpCode::kLogits: runner_.logits(run.input.logits_row, model_.parameter_views(i.segment), run.logits); break;
    case OpCode::kRehearseBroadcast:
      communicators_.find(i.group, i.stream)
          .broadcast({.data = &run.rehearsed,
                      .count = 1,
                      .dtype = DType::kInt64,
                      .tag = {.what = "rehearsal", .phase = i.phase, .step = run.input.step}},
                     stream(i.stream));
      break;
  }
}

void Executor::agree_tokens(const Instruction& i, Run& run) {
  run.num_targets = run.input.batch->num_targets(options_.ignore_index);
  run.tokens_work = communicators_.find(i.group, i.stream)
                        .all_reduce({.data = &run.num_targets,
                                     .count = 1,
                                     .dtype = DType::kInt64,
                                     .tag = {.what = "tokens", .phase = i.phase, .step = run.input.step}},
                                    stream(i.stream));
}

// Queued behind the step's calls; a failure shows when the stream is next waited for.
void Executor::compare_histories(std::int64_t step) {
  if (!options_.compare_histories) return;
  enter(TraceClass::kWait);
  communicators_.for_each(
      [&](Communicator& communicator, StreamId id) { communicator.compare_history(step, stream(id)); });
  streams_.gather.synchronize();
  enter(TraceClass::kCompute);
}

void Executor::agree_norm(const Instruction& i, Run& run) {
  compare_histories(run.input.step);
  Communicator& world = communicators_.find(i.group, i.stream);
  const ExactSum squares = model_.gradient_square_sum(streams_.compute);
  const bool finite = squares.num_non_finite() == 0 && run.losses.sum.num_non_finite() == 0;
  std::vector<std::int64_t> words;
  const auto append = [&](const ExactSum& sum) {
    const auto exported = sum.export_words();
    words.insert(words.end(), exported.begin(), exported.end());
  };
  append(model_.is_first_replica() ? squares : ExactSum());
  append(run.losses.sum);
  words.push_back(run.input.stop_requested ? 1 : 0);
  words.push_back(run.input.save_ready ? 1 : 0);
  // The global batch begins with the first rank's: nobody else's bits are in the sum.
  words.push_back(world.rank() == 0 ? std::bit_cast<std::int64_t>(run.first_loss) : 0);
  const std::size_t slots = words.size();
  words.resize(slots + static_cast<std::size_t>(world.size()) * kSlotWords, 0);
  const MemoryStats memory = device_.allocator().stats();
  std::int64_t* own = words.data() + slots + static_cast<std::size_t>(world.rank()) * kSlotWords;
  require(words.size() == num_norm_words(world.size()), "the agreement has the words that the program check expects");
  own[0] = std::bit_cast<std::int32_t>(run.losses.max_loss);
  own[1] = (finite ? 0 : kNonFinite) | (run.losses.num_targets > 0 ? kHasTargets : 0);
  own[2] = memory.total.allocated_peak;
  own[3] = memory.reserved_peak;
  enter(TraceClass::kWait);
  world
      .all_reduce({.data = words.data(),
                   .count = words.size(),
                   .dtype = DType::kInt64,
                   .tag = {.what = "norm", .phase = i.phase, .step = run.input.step}},
                  stream(i.stream))
      .synchronize();

  const std::span<const std::int64_t> all(words);
  const ExactSum all_squares = ExactSum::from_words(all.subspan(0, ExactSum::kNumWords));
  const ExactSum all_losses = ExactSum::from_words(all.subspan(ExactSum::kNumWords, ExactSum::kNumWords));
  StepOutcome& outcome = run.outcome;
  outcome.num_targets = run.num_targets;
  outcome.loss = run.num_targets > 0 ? all_losses.value() / static_cast<double>(run.num_targets) : 0.0;
  outcome.grad_norm = std::sqrt(all_squares.value());
  outcome.stop = words[slots - 3] != 0;
  outcome.save_ready = words[slots - 2] == world.size();
  outcome.first_loss = std::bit_cast<double>(words[slots - 1]);
  double max_loss = -std::numeric_limits<double>::infinity();
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t* slot = words.data() + slots + static_cast<std::size_t>(rank) * kSlotWords;
    if ((slot[1] & kNonFinite) != 0) outcome.non_finite_ranks.push_back(rank);
    if ((slot[1] & kHasTargets) != 0)
      max_loss = std::max(max_loss, static_cast<double>(std::bit_cast<float>(static_cast<std::int32_t>(slot[0]))));
    outcome.allocated_peak = std::max(outcome.allocated_peak, slot[2]);
    outcome.reserved_peak = std::max(outcome.reserved_peak, slot[3]);
  }
  outcome.max_loss = run.num_targets > 0 ? max_loss : 0.0;
  run.finite = outcome.non_finite_ranks.empty() && std::isfinite(outcome.grad_norm) && std::isfinite(outcome.loss);
}

void Executor::agree_loss(const Instruction& i, Run& run) {
  std::vector<std::int64_t> words;
  const auto exported = run.losses.sum.export_words();
  words.assign(exported.begin(), exported.end());
  words.push_back(run.losses.num_targets);
  words.push_back(run.input.stop_requested ? 1 : 0);
  communicators_.find(i.group, i.stream)
      .all_reduce({.data = words.data(),
                   .count = words.size(),
                   .dtype = DType::kInt64,
                   .tag = {.what = "loss", .phase = i.phase, .step = run.input.step}},
                  stream(i.stream))
      .synchronize();
  run.losses.sum = ExactSum::from_words(std::span<const std::int64_t>(words).subspan(0, ExactSum::kNumWords));
  run.losses.num_targets = words[ExactSum::kNumWords];
  run.outcome.stop = words.back() != 0;
}

void Executor::update(Run& run) {
  if (!run.finite) return;
  double scale = 1.0;
  if (options_.clip_norm > 0 && run.outcome.grad_norm > options_.clip_norm)
    scale = options_.clip_norm / run.outcome.grad_norm;
  optimizer_->step(run.input.step, run.input.learning_rate, run.input.schedule_factor, static_cast<float>(scale),
                   streams_.compute);
  run.outcome.updated = true;
}

}  // namespace tessera
